/** The example notebooks: a command, and a card in JupyterLab's launcher. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, showErrorMessage } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';

import { cloudIcon, cloudUrl } from './icons';
import { ISky } from './tokens';

const COMMAND = 'jupyter-sky:examples';

export const examples: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-sky:examples',
  description: 'Copies the example notebooks of jupyter_sky and opens the first one.',
  autoStart: true,
  requires: [ISky],
  optional: [ILauncher, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    sky: ISky,
    launcher: ILauncher | null,
    palette: ICommandPalette | null
  ): void => {
    const { _ } = sky;
    app.commands.addCommand(COMMAND, {
      label: args => (args.isLauncher ? _('Sky Examples') : _('Open Example Notebooks')),
      caption: _('Notebooks to start from, copied to the folder sky-examples'),
      icon: args => (args.isPalette ? undefined : cloudIcon),
      execute: () => openExamples(app, sky)
    });
    launcher?.add({
      command: COMMAND,
      category: _('Notebook'),
      rank: 10,
      args: { isLauncher: true },
      // cards beside those of kernels have pictures, and a letter where there is none
      kernelIconUrl: cloudUrl
    });
    palette?.addItem({ command: COMMAND, category: _('Sky'), args: { isPalette: true } });
  }
};

/**
 * Copies the notebooks and the guide below the server's root, and opens the first example.
 *
 * Returns its widget, in whose place the launcher goes.
 */
export async function openExamples(app: JupyterFrontEnd, sky: ISky): Promise<unknown> {
  try {
    const { paths } = await sky.api.copyExamples();
    return await app.commands.execute('docmanager:open', { path: paths[0] });
  } catch (error) {
    await showErrorMessage(sky._('Example Notebooks'), error as Error);
    return null;
  }
}
