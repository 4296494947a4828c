/** Tabs of the main area with the view of one run each, opened from a list in the panel. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ILayoutRestorer } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { cloudIcon } from './icons';
import { mountList, type IListKind } from './pipelineList';
import type { ISky } from './tokens';

export interface IRunTabs {
  id: string; // of the panel's tab
  command: string; // that opens one
  label: string; // of the command
  caption: string;
  rank: number; // among the panel's tabs
  list: IListKind;
  title: (name: string) => string;
  focus: string; // selector of what gets the focus
  mount: (host: HTMLElement, name: string) => () => void;
}

class RunTab extends Widget {
  constructor(
    private kind: IRunTabs,
    name: string
  ) {
    super();
    this.addClass('jsky-RunTab');
    this.take = kind.mount(this.node, name);
  }

  dispose(): void {
    if (!this.isDisposed) this.take();
    super.dispose();
  }

  protected onActivateRequest(): void {
    this.node.querySelector<HTMLElement>(this.kind.focus)?.focus();
  }

  private take: () => void;
}

/** Adds the list to the panel, and the command that opens one run. */
export function addRunTabs(app: JupyterFrontEnd, sky: ISky, restorer: ILayoutRestorer | null, kind: IRunTabs): void {
  const tracker = new WidgetTracker<MainAreaWidget<RunTab>>({ namespace: `jupyter-sky-${kind.id}` });
  const names = new Map<string, string>();

  async function open(name: string): Promise<void> {
    const id = `jsky-${kind.id}-${name}`;
    if (!tracker.find(widget => widget.id === id)) {
      const widget = new MainAreaWidget({ content: new RunTab(kind, name) });
      widget.id = id;
      widget.title.label = kind.title(name);
      widget.title.caption = widget.title.label;
      widget.title.icon = cloudIcon;
      widget.title.closable = true;
      names.set(id, name);
      app.shell.add(widget, 'main');
      await tracker.add(widget);
    }
    app.shell.activateById(id);
  }

  app.commands.addCommand(kind.command, {
    label: kind.label,
    caption: kind.caption,
    icon: cloudIcon,
    describedBy: { args: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } },
    execute: args => open(args.name as string)
  });
  sky.addTab({
    id: kind.id,
    label: kind.list.label,
    rank: kind.rank,
    mount: host => mountList(host, sky._, kind.list, name => void open(name))
  });
  void restorer?.restore(tracker, {
    command: kind.command,
    args: widget => ({ name: names.get(widget.id) ?? '' }),
    name: widget => widget.id
  });
}
