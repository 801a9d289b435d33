"""`python -m infra.command` is `ingress-swarm`."""

from infra.command.main import main

main()
