/** Element that had the focus before a part of the page was opened. */

export class FocusMemory {
  /**
   * @param part - the part of the page that takes the focus
   * @param otherwise - moves the focus when the element is gone
   */
  constructor(
    private part: HTMLElement,
    private otherwise: () => void
  ) {}

  isInside(): boolean {
    return this.part.contains(document.activeElement);
  }

  /** Notes the element that has the focus, unless it is inside already. */
  remember(): void {
    const active = document.activeElement;
    if (this.isInside()) return;
    this.before = active instanceof HTMLElement && active !== document.body ? active : null;
  }

  giveBack(): void {
    const { before } = this;
    if (before?.isConnected && before.offsetParent !== null) before.focus();
    else this.otherwise();
  }

  private before: HTMLElement | null = null;
}
