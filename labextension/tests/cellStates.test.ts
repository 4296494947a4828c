import { expect, it } from 'vitest';

import { english } from '../../jupyter_sky/interfaces/widgets/static/base.js';
import { cellWords } from '../src/cellStates';

const state = { id: 'a', source: 'x = 1', task: 'fit', phase: 'succeeded', words: '✓ succeeded · 3.0 s' };

it('a cell that was edited since it ran says so', () => {
  expect(cellWords(state, 'x = 1', english)).toBe('✓ succeeded · 3.0 s');
  expect(cellWords(state, 'x = 2', english)).toBe('✓ succeeded · 3.0 s · edited since');
});
