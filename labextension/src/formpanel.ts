/** The panel that a cell's form stands in: below the cell's toolbar, beside its code. */

import type { NotebookPanel } from '@jupyterlab/notebook';
import { Widget } from '@lumino/widgets';

import { h, uid } from '../../jupyter_sky/interfaces/widgets/static/base.js';
import type { Translate } from './format';

export type Cell = NotebookPanel['content']['widgets'][number];

const EDGE = 8; // px that stay free around it

/** A dialog that lets the rest be used: Escape closes it, and the cell has the focus again. */
export class FormPanel extends Widget {
  constructor(options: {
    panel: NotebookPanel;
    cell: Cell;
    body: HTMLElement;
    title?: string;
    _: Translate;
  }) {
    super();
    const { panel, cell, body, _ } = options;
    this.panel = panel;
    this.cell = cell;
    this.mode = panel.content.mode;
    const title = h('h2', { id: uid('title'), text: options.title ?? _('What this cell needs') });
    const close = h(
      'button',
      {
        type: 'button',
        class: 'jsky-NeedsPanel-close',
        title: _('Close (Escape)'),
        'aria-label': _('Close'),
        on: { click: () => this.dispose() }
      },
      '×'
    );
    this.node.append(h('div', { class: 'jsky-NeedsPanel-head' }, title, close), body);
    this.addClass('jsky-NeedsPanel');
    this.addClass('jsky-View');
    this.node.setAttribute('role', 'dialog');
    this.node.setAttribute('aria-labelledby', title.id);
    // keys are for the form, not for shortcuts of the notebook
    this.node.setAttribute('data-lm-suppress-shortcuts', 'true');
    cell.disposed.connect(this.dispose, this);
    panel.disposed.connect(this.dispose, this);
    Widget.attach(this, document.body);
    this.node.tabIndex = -1;
    this.node.focus(); // Escape closes it before its fields are there, too
    this.seen = new IntersectionObserver(() => panel.isVisible || this.dispose());
    this.seen.observe(panel.node);
    this.grown = new ResizeObserver(() => this.place());
    this.grown.observe(this.node);
    this.place();
  }

  handleEvent(event: Event): void {
    if (event.type === 'resize') {
      this.place();
    } else if (event instanceof KeyboardEvent) {
      this.keydown(event);
    }
  }

  dispose(): void {
    if (this.isDisposed) return;
    const { panel, cell, mode } = this;
    const had = this.node.contains(document.activeElement);
    this.seen.disconnect();
    this.grown.disconnect();
    super.dispose();
    if (!had || panel.isDisposed || cell.isDisposed) return;
    panel.content.activeCellIndex = panel.content.widgets.indexOf(cell);
    panel.content.mode = mode;
    panel.content.activate();
  }

  protected onAfterAttach(): void {
    window.addEventListener('resize', this);
    this.node.addEventListener('keydown', this);
  }

  protected onBeforeDetach(): void {
    window.removeEventListener('resize', this);
    this.node.removeEventListener('keydown', this);
  }

  private keydown(event: KeyboardEvent): void {
    if (event.key === 'Escape' && !event.defaultPrevented) {
      event.preventDefault();
      event.stopPropagation();
      this.dispose();
    } else if (event.key === 'Tab') {
      const stops = this.node.querySelectorAll<HTMLElement>('input, select, button, summary');
      const there = [...stops].filter(one => one.offsetParent && !(one as any).disabled);
      const [first, last] = [there[0], there[there.length - 1]];
      const edge = event.shiftKey ? first : last;
      if (document.activeElement === edge) {
        event.preventDefault();
        (event.shiftKey ? last : first).focus();
      }
    }
  }

  /** Below the cell, at its right; where there is no room, as far down as it goes. */
  private place(): void {
    const cell = this.cell.node.getBoundingClientRect();
    const [width, height] = [this.node.offsetWidth, this.node.offsetHeight];
    const within = (value: number, most: number) => Math.max(EDGE, Math.min(value, most - EDGE));
    const left = within(cell.right - width - EDGE, window.innerWidth - width);
    const top = within(Math.max(cell.bottom, EDGE) + 2, window.innerHeight - height);
    Object.assign(this.node.style, { left: `${left}px`, top: `${top}px` });
  }

  private readonly panel: NotebookPanel;
  private readonly cell: Cell;
  private readonly mode: 'command' | 'edit';
  private readonly seen: IntersectionObserver;
  private readonly grown: ResizeObserver;
}
