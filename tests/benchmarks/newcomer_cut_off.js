/**
 * Elements of our views that are cut off, as a list of texts; called with the selector of the views.
 *
 * An element is cut off when a part of it lies outside of an ancestor, or of the window, that
 * clips and cannot be scrolled to it, or when its own text overflows it unseen. What is hidden from
 * sight on purpose (one pixel, `hidden`), and text that ends in an ellipsis with the whole in a
 * tooltip, is not. To scroll sideways, there has to be a visible scroll bar in the view itself: that
 * of JupyterLab's output area is far below what it moves.
 */
selector => {
  const SLACK = 2; // px: borders and rounded positions
  const scrolls = (style, axis) => /(auto|scroll)/.test(axis === 'x' ? style.overflowX : style.overflowY);
  const clips = (style, axis) => /(hidden|clip)/.test(axis === 'x' ? style.overflowX : style.overflowY);
  const hidden = element => {
    const style = getComputedStyle(element);
    const { width, height } = element.getBoundingClientRect();
    return (
      style.visibility === 'hidden' || style.display === 'none' || Number(style.opacity) === 0 ||
      width <= 1 || height <= 1 || element.closest('[hidden], .jsky-hidden, .jsky-Panel-hidden')
    );
  };
  const named = element => {
    const text = (element.textContent ?? '').trim().replace(/\s+/g, ' ').slice(0, 60);
    const name = element.getAttribute('class')?.split(' ')[0] ?? '';
    return `${element.tagName.toLowerCase()}${name ? `.${name}` : ''} "${text}"`;
  };
  const tooltip = element => element.closest('[title]')?.title || element.closest('[aria-label]');
  const carriesContent = element =>
    /^(svg|canvas|img|input|select|button|textarea)$/i.test(element.tagName) ||
    [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());

  /** Whether an element of a view can be scrolled sideways by a bar that is seen. */
  const hasBar = (element, view) => {
    const { borderTopWidth, borderBottomWidth } = getComputedStyle(element);
    const borders = parseFloat(borderTopWidth) + parseFloat(borderBottomWidth);
    const inside = element !== view && view.contains(element);
    return inside && element.offsetHeight - element.clientHeight - borders > SLACK;
  };

  /** Why an element cannot be seen whole, or nothing. */
  function reason(element, view) {
    const style = getComputedStyle(element);
    const wider = element.scrollWidth > element.clientWidth + SLACK;
    if (wider && clips(style, 'x') && element.clientWidth && !tooltip(element)) return 'its text';
    const box = element.getBoundingClientRect();
    const open = { x: true, y: true };
    for (let above = element.parentElement; above && (open.x || open.y); above = above.parentElement) {
      const outer = above.getBoundingClientRect();
      const css = getComputedStyle(above);
      for (const axis of ['x', 'y']) {
        if (!open[axis]) continue;
        const [start, end] = axis === 'x' ? ['left', 'right'] : ['top', 'bottom'];
        const beyond = box[end] > outer[end] + SLACK || box[start] < outer[start] - SLACK;
        const reached = scrolls(css, axis) && (axis === 'y' || hasBar(above, view));
        if (reached) open[axis] = false;
        else if (beyond && scrolls(css, axis)) return `beyond ${named(above)} (no scroll bar)`;
        else if (clips(css, axis) && beyond) {
          if (!tooltip(element)) return `beyond ${named(above)} (${axis})`;
          open[axis] = false; // nothing of it is drawn farther out
        }
      }
      if (css.position === 'fixed') break;
    }
    if (open.x && (box.right > innerWidth + SLACK || box.left < -SLACK)) return 'beyond the window';
    return '';
  }

  const found = [];
  for (const view of document.querySelectorAll(selector)) {
    if (!view.offsetParent && getComputedStyle(view).position !== 'fixed') continue;
    for (const element of [view, ...view.querySelectorAll('*')]) {
      if (element.closest('svg') !== element && element.closest('svg')) continue; // drawn to scale
      if (!carriesContent(element) || hidden(element)) continue;
      const why = reason(element, view);
      if (why) found.push(`${named(element)}: ${why}`);
    }
  }
  return [...new Set(found)];
}
