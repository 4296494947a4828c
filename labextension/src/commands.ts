/** The commands: in the palette, in menus of the panel, and by keys. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette, InputDialog } from '@jupyterlab/apputils';

import type { ICluster, IRun } from './api';
import type { Actions } from './actions';
import { isLive, phase, disabledReason } from './selectors';
import { cloudIcon } from './icons';
import type { ISky } from './tokens';

type Args = Record<string, unknown>;

/** Registers all; those that have a place in the palette get it. */
export function addCommands(
  app: JupyterFrontEnd,
  sky: ISky,
  actions: Actions,
  palette: ICommandPalette | null
): void {
  const { _, poller } = sky;
  const clusters = () => poller.state?.clusters.filter(isLive) ?? [];
  const runs = () => poller.state?.runs ?? [];
  const active = () => runs().filter(run => phase(run) !== 'ended' && run.stoppable);

  /** Attribute of the element under the pointer when the menu was opened. */
  const under = (name: string): string | undefined =>
    app.contextMenuHitTest(node => node.hasAttribute(name))?.getAttribute(name) ?? undefined;

  /** The element of the last click stays known for good: a command of the palette ignores it. */
  const named = (args: Args): ICluster | undefined => {
    const name = args.name ?? (args.isPalette ? undefined : under('data-jsky-cluster'));
    return clusters().find(one => one.name === name);
  };
  const run = (args: Args): IRun | undefined => {
    const id = args.run_id ?? under('data-jsky-run');
    return runs().find(one => one.run_id === id);
  };

  /** The cluster meant: named, under the pointer, the only one, or asked for. */
  const choose = async (args: Args, title: string): Promise<ICluster | undefined> => {
    const one = named(args);
    if (one || args.name) return one;
    const all = clusters();
    if (!all.length) {
      actions.say(_('No cluster is up.'), '', true);
      return undefined;
    }
    if (all.length === 1) return all[0];
    const items = all.map(cluster => cluster.name);
    const asked = await InputDialog.getItem({ title, items });
    return all.find(cluster => asked.button.accept && cluster.name === asked.value);
  };

  const add = (
    id: string,
    label: string | ((args: Args) => string),
    execute: (args: Args) => unknown,
    options: {
      caption?: string;
      isEnabled?: (args: Args) => boolean;
      hidden?: boolean;
      rank?: number;
    } = {}
  ) => {
    const { hidden, rank, ...rest } = options;
    const command = `jupyter-sky:${id}`;
    const icon = (args: Args) => (args.isPalette ? undefined : cloudIcon);
    app.commands.addCommand(command, { label, execute, icon, ...rest });
    if (!hidden) palette?.addItem({ command, category: _('Sky'), args: { isPalette: true }, rank });
  };

  const open = (args: Args) => {
    if (!args.tab && !args.isPalette && sky.hasFocus()) sky.giveFocusBack();
    else sky.open(args.tab as string);
  };
  const caption = _('Clusters, runs, offers and costs; again: back to the notebook');
  add('open', _('Open Sky Panel'), open, { caption, rank: 0 });
  add('find-offers', _('Find Offers of Machines'), () => sky.open('offers'));
  add('help', _('Search the Help of Sky'), () => sky.open('help'));
  add('refresh', _('Refresh the Sky Panel'), () => poller.refresh());

  const onCluster = (
    id: string,
    label: string,
    its: string, // the label where the cluster is known
    action: 'down' | 'start' | 'extend' | 'ssh' | 'insert' | 'log',
    act: (cluster: ICluster) => Promise<void>
  ) =>
    add(
      id,
      args => (named(args) ? its : label),
      async args => {
        const cluster = await choose(args, label);
        if (!cluster) return;
        const why = disabledReason(action, cluster, _);
        if (why) actions.say(why, '', true);
        else await act(cluster);
      },
      { isEnabled: args => !named(args) || !disabledReason(action, named(args)!, _) }
    );
  onCluster('down', _('End a Cluster…'), _('End Cluster…'), 'down', one => actions.down(one));
  onCluster('start', _('Start a Stopped Cluster'), _('Start Cluster'), 'start', one =>
    actions.start(one)
  );
  onCluster('extend', _('Keep a Cluster Longer…'), _('Keep It Longer…'), 'extend', one =>
    actions.extend(one)
  );
  onCluster('copy-ssh', _('Copy the SSH Line of a Cluster'), _('Copy SSH Line'), 'ssh', one =>
    actions.copySsh(one)
  );
  onCluster('insert-cell', _('Insert a Cell for a Cluster'), _('Insert Cell'), 'insert', one =>
    actions.insertFor(one)
  );
  onCluster('launch-log', _('Show How a Cluster Was Launched'), _('Launch Log'), 'log', one =>
    actions.launchLog(one)
  );

  add('stop-all', _('Stop All Cells on Clusters'), async () => {
    if (active().length) await actions.stop(active());
    else actions.say(_('No cell runs on a cluster.'), '', true);
  });
  add('stop', _('Stop This Cell'), args => run(args) && actions.stop([run(args)!]), {
    hidden: true,
    isEnabled: args => Boolean(run(args)?.stoppable)
  });
  add('open-run', _('Go to This Cell'), args => run(args) && actions.openRun(run(args)!), {
    hidden: true,
    isEnabled: args => Boolean(run(args)) && !actions.noNotebookReason(run(args)!)
  });
}
