/** Services of the panel for this and other extensions. */

import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';

import type { Api } from './api';
import type { StatePoller } from './statePoller';
import type { Translate } from './format';

/** A tab of the panel; those of others are filled by `mount`. */
export interface ITab {
  id: string;
  label: string;
  /** Shown instead of the label, which is then a tooltip. */
  sign?: string;
  /** Clusters are 10, runs 20, offers 30, help 90; tabs stand in order. */
  rank: number;
  /** Fills an empty element when the tab is opened; the answer cleans up when it is left. */
  mount?(host: HTMLElement): () => void;
}

export interface ISky {
  readonly api: Api;
  readonly poller: StatePoller;
  readonly _: Translate;
  /** Adds a tab to the panel until the answer is disposed of. */
  addTab(tab: ITab & Required<Pick<ITab, 'mount'>>): IDisposable;
  /** Shows the panel, at a tab if one is named. */
  open(tab?: string): void;
  /** Whether the panel has the focus. */
  hasFocus(): boolean;
  /** Puts the focus where it was before the panel was opened. */
  giveFocusBack(): void;
}

export const ISky = new Token<ISky>(
  'jupyter-sky:ISky',
  'The client of the server, its state, and the panel of jupyter_sky.'
);
