// Merged into what @jupyter/builder says. TypeScript is only stripped of its types here: `npm run
// check` is what looks at them, so that a build needs neither TypeScript nor JupyterLab's packages.
const typescript = syntax => ({
  loader: 'builtin:swc-loader',
  options: {
    jsc: { parser: { syntax: 'typescript', tsx: syntax === 'tsx' }, target: 'es2022' }
  }
});

module.exports = {
  context: __dirname,
  // Without this the names of the files that are built depend on where the checkout lies.
  optimization: { moduleIds: 'named', chunkIds: 'named' },
  resolve: { extensions: ['.ts', '.tsx', '.js', '.json'] },
  module: {
    rules: [
      { test: /\.ts$/, use: typescript('ts'), type: 'javascript/auto' },
      { test: /\.tsx$/, use: typescript('tsx'), type: 'javascript/auto' },
      { test: /\.svg$/, issuer: /\.tsx?$/, type: 'asset/source' }
    ]
  }
};
