/**
 * Texts for users in the TypeScript and JavaScript sources that are not translated, one a line:
 * `node tests/translation/typescript_strings.mjs FILE...`
 *
 * A text is for users when it has a word and is the text of an element in JSX, the value of a
 * property or attribute that is shown or read aloud (`SHOWN`), or has two words or more. Not for
 * users are: class names, selectors, ids and keys, `%%sky` lines and code of examples, imports,
 * descriptions of plugins (JupyterLab shows them in English), errors of a programmer.
 *
 * A text is translated when it is an argument of `_`, `__` or `_n`.
 */

import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const require = createRequire(new URL('../../labextension/package.json', import.meta.url));
const ts = require('typescript');

const SHOWN = new Set(
  'title aria-label placeholder label alt caption text okLabel cancelLabel message hint summary'.split(' ')
);
const HIDDEN = new Set('className class style type role id key d description selector'.split(' '));
const INTERNAL =
  /(querySelector\w*|matches|closest|classList\.\w+|execCommand|console\.\w+|isBusy|busy|perform|createElement|setAttribute|Token)$/;
const CODE = /^(%%?sky|%load_ext|use strict|color-mix|jsky-|aria-)/;

/** Whether a text is for users: 'yes', 'no', or 'translated', by its place in the source. */
function place(node) {
  if (ts.isJsxText(node)) return 'yes';
  for (let child = node, parent = node.parent; parent; child = parent, parent = parent.parent) {
    if (ts.isCallExpression(parent) && parent.arguments.includes(child)) {
      const name = parent.expression.getText();
      if (/(^|\.)(_|__|_n)$/.test(name)) return 'translated';
      if (INTERNAL.test(name) && parent.arguments[0] === child) return 'no';
    }
    if (ts.isNewExpression(parent) && /^(Error|Token|Signal)/.test(parent.expression.getText())) return 'no';
    if (ts.isImportDeclaration(parent) || ts.isExportDeclaration(parent)) return 'no';
    if (ts.isTypeNode(parent)) return 'no';
    if (ts.isPropertyAssignment(parent) || ts.isJsxAttribute(parent)) {
      const key = parent.name.getText().replace(/['"]/g, '');
      if (child === parent.name || HIDDEN.has(key)) return 'no';
      return SHOWN.has(key) ? 'yes' : '';
    }
    if (ts.isStatement(parent)) return '';
  }
  return '';
}

/** A text's own words, `%` where a value is filled in. */
function words(node) {
  if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node) || ts.isJsxText(node)) {
    return node.text;
  }
  if (!ts.isTemplateExpression(node)) return null;
  return [node.head.text, ...node.templateSpans.map(span => span.literal.text)].join('%');
}

for (const file of process.argv.slice(2)) {
  const kind = file.endsWith('x') ? ts.ScriptKind.TSX : undefined;
  const source = ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest, true, kind);
  const visit = node => {
    const text = words(node);
    if (text !== null && /[A-Za-z]{2,}/.test(text) && !CODE.test(text.trim())) {
      const where = place(node);
      if (where === 'yes' || (where === '' && /[A-Za-z]{2,},? [A-Za-z%]/.test(text))) {
        const { line } = source.getLineAndCharacterOfPosition(node.getStart());
        console.log(`${file}:${line + 1}: ${JSON.stringify(text)}`);
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
}
