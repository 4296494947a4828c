/** Minimal edits of a cell's text. */

/** Part of a cell that an edit needs. */
export interface IEditableCell {
  model: {
    sharedModel: {
      getSource(): string;
      updateSource(start: number, end: number, value: string): void;
    };
  };
}

/** Changes a cell's text where it differs, and nowhere else: cursors and undo stay. */
export function replaceSource(cell: IEditableCell, next: string): void {
  const shared = cell.model.sharedModel;
  const now = shared.getSource();
  if (now === next) return;
  const most = Math.min(now.length, next.length);
  let start = 0;
  while (start < most && now[start] === next[start]) start += 1;
  let end = 0;
  while (end < most - start && now[now.length - 1 - end] === next[next.length - 1 - end]) end += 1;
  shared.updateSource(start, now.length - end, next.slice(start, next.length - end));
}
