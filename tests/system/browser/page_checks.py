"""Checks that every page must pass, whatever it shows. The browser runs them after it has laid out the page."""

# Finds every element that extends beyond the right edge of a window of `width`, or is cut off inside its own box.
_OVERFLOW = """(width) => [...document.querySelectorAll("body *")].filter((element) =>
    element.getBoundingClientRect().right > width + 0.5 ||
    (element.matches(".value, .legend, dl div, td, #state") && element.scrollWidth > element.clientWidth)
  ).map((element) => `${element.tagName}#${element.id} "${element.textContent}"`)"""

# Finds texts and chart lines with too little contrast to their background, by the ratios of WCAG 2.1, AA.
_LOW_CONTRAST = """() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = (color) => channels(color).slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (channels(color)[3] !== 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const ratio = (element) => {
    const [light, dark] = [getComputedStyle(element).color, background(element)].map(luminance).sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const visible = (element) => element.checkVisibility();
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const texts = [...document.querySelectorAll("body *:not(script, noscript)")].filter((e) => visible(e) && hasText(e));
  const lines = [...document.querySelectorAll("path.a, path.b, path.c, path.d, path.link, path.plan")].filter(visible);
  if (!texts.length || !lines.length) return ["nothing to look at"];
  return [...texts.filter((e) => ratio(e) < 4.5), ...lines.filter((e) => ratio(e) < 3)]
    .map((e) => `${e.tagName}.${e.getAttribute("class")} "${e.textContent}" ${ratio(e).toFixed(2)}`);
}"""

_SHIFTED = """() => new Promise((resolve) => {
  const name = ({ node }) => node ? `${node.nodeName}#${node.id} "${node.textContent.trim().slice(0, 40)}"` : "what is gone";
  const describe = (shift) => `${shift.value.toFixed(3)}: ${shift.sources.map(name)}`;
  // A number that gets a digit moves the edge of its own text, for a score of some 0.0003.
  const moved = (list) => list.getEntries().filter((shift) => shift.value > 0.005).map(describe);
  new PerformanceObserver((list) => resolve(moved(list))).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => resolve([]), 500);
})"""


def overflow(browser, width):
    return browser.evaluate(f"({_OVERFLOW})({width})")


def low_contrast(browser):
    return browser.evaluate(f"({_LOW_CONTRAST})()")


def shifted(browser):
    """Returns the elements that have moved since the page was opened without user input, with the browser's score
    for each shift."""
    return browser.evaluate(f"({_SHIFTED})()")
