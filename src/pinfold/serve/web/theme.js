// Before anything is drawn: light or dark as chosen here before; without a choice, as the system says.
(() => {
  try {
    const chosen = localStorage.getItem("pinfold-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // The browser may refuse storage.
  }
})();
