/** Style sheets and sources agree on the names of classes. */
/// <reference types="node" />

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const ROOT = join(__dirname, '..');
const VIEWS = join(ROOT, '../jupyter_sky/interfaces/widgets/static');

const read = (folder: string, endings: RegExp): string =>
  readdirSync(folder)
    .filter(name => endings.test(name))
    .map(name => readFileSync(join(folder, name), 'utf-8'))
    .join('\n');

it('every class of a style sheet is used by a source', () => {
  const sources = read(join(ROOT, 'src'), /\.tsx?$/) + read(VIEWS, /\.js$/);
  const styles = read(join(ROOT, 'style'), /\.css$/) + read(VIEWS, /\.css$/);
  const classes = new Set(styles.match(/(?<=\.)jsky-[\w-]+/g));
  // `jsky-mod-` and `jsky-ansi-` are followed by a value
  const fixed = [...classes].filter(name => !/^jsky-(mod|ansi)-/.test(name));
  expect(fixed.length).toBeGreaterThan(50);
  expect(fixed.filter(name => !new RegExp(`${name}(?![\\w-])`).test(sources))).toEqual([]);
});
