"use strict";
(() => {
  const { figures, tokens } = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const hidden = new Set();
  let printing = false;

  // Colours stand in the figures as "@name" and are put in for the theme of the moment.
  const coloured = (value, theme) => {
    if (typeof value === "string") return value[0] === "@" ? tokens[value.slice(1)][theme] : value;
    if (Array.isArray(value)) return value.map((item) => coloured(item, theme));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, verbatim.has(key) ? item : coloured(item, theme)]),
    );
  };
  // Text out of a run is never taken for a colour.
  const verbatim = new Set(["x", "y", "text", "ticktext", "tickvals", "name", "meta", "hovertemplate"]);

  const draw = (id) => {
    const theme = dark.matches && !printing ? 1 : 0;
    const figure = coloured(figures[id], theme);
    for (const trace of figure.data) trace.visible = !hidden.has(trace.meta);
    return Plotly.react(document.getElementById(id), figure.data, figure.layout, {
      responsive: true,
      displayModeBar: false,
    });
  };

  const paint = () => {
    const theme = dark.matches && !printing ? 1 : 0;
    for (const swatch of document.querySelectorAll("svg[data-token]")) {
      swatch.style.color = tokens[swatch.dataset.token.slice(1)][theme];
    }
    for (const id of Object.keys(figures)) draw(id);
  };

  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const token = button.dataset.token;
      if (!hidden.delete(token)) hidden.add(token);
      button.setAttribute("aria-pressed", String(!hidden.has(token)));
      for (const id of Object.keys(figures)) if (id.startsWith("distribution")) draw(id);
    });
  }
  dark.addEventListener("change", paint);
  window.addEventListener("beforeprint", () => { printing = true; paint(); });
  window.addEventListener("afterprint", () => { printing = false; paint(); });
  paint();
})();
