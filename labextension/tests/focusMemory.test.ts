import { expect, it, vi } from 'vitest';

import { FocusMemory } from '../src/focusMemory';

it('gives the focus back to where it was', () => {
  document.body.innerHTML = '<input id="cell"><div id="panel"><button>tab</button></div>';
  const [cell, tab] = [document.querySelector('input')!, document.querySelector('button')!];
  Object.defineProperty(cell, 'offsetParent', { value: document.body }); // there is no layout
  const otherwise = vi.fn();
  const memory = new FocusMemory(document.querySelector<HTMLElement>('#panel')!, otherwise);
  cell.focus();
  memory.remember();
  tab.focus();
  expect(memory.isInside()).toBe(true);
  memory.remember(); // opened once more from inside: the place before stays
  memory.giveBack();
  expect(document.activeElement).toBe(cell);
  tab.focus();
  cell.remove();
  memory.giveBack();
  expect(otherwise).toHaveBeenCalledOnce();
});
