"""Requests at a constant rate, on a fixed schedule, however fast the replies come: wrk2's way, in Locust.

    locust -f locustfiles/constant_rate.py --host https://ingress.example.test -u 1000 --rate 30000

Each user is one keep-alive connection; the rate is that of all users together. Latency counts from the moment a
request was due.
"""

from locust import task

from locustfiles.engine import ConnectionUser, install

install()


class ConstantRateUser(ConnectionUser):
    """One connection of a constant-rate load."""

    abstract = False
    profile = "constant_rate"

    @task
    def hold_a_connection(self) -> None:
        """Live until the run ends; the pump sends this user's slots."""
        self.wait_for_ever()
