/** Which tabs the panel has, in order, and which are hidden. */

import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import type { ITab } from './tokens';

export class Tabs {
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Those that are shown, in order. */
  get shown(): ITab[] {
    return this.all.filter(tab => !this.hiding.includes(tab.id)).sort((a, b) => a.rank - b.rank);
  }

  /** The open one; the first if it is hidden or gone. */
  get current(): ITab | undefined {
    return this.shown.find(tab => tab.id === this.chosen) ?? this.shown[0];
  }

  add(tab: ITab): IDisposable {
    this.all = [...this.all.filter(other => other.id !== tab.id), tab];
    this.changes.emit();
    return new DisposableDelegate(() => {
      this.all = this.all.filter(other => other !== tab);
      this.changes.emit();
    });
  }

  choose(id: string): void {
    if (id === this.chosen) return;
    this.chosen = id;
    this.changes.emit();
  }

  hide(ids: string[]): void {
    this.hiding = ids;
    this.changes.emit();
  }

  private all: ITab[] = [];
  private hiding: string[] = [];
  private chosen = 'clusters';
  private changes = new Signal<this, void>(this);
}
