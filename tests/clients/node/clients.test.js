// @kubernetes/client-node: typed and custom objects, watches that resume, informers.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import * as k8s from '@kubernetes/client-node';

import { startServer } from './server.js';

const TIMEOUT_MS = 30_000;

// Resolves with the first truthy value of `condition`, which is asked again every 20 ms.
async function eventually(what, condition) {
  const deadline = Date.now() + TIMEOUT_MS;
  while (Date.now() < deadline) {
    const result = await condition();
    if (result) return result;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.fail(`not within ${TIMEOUT_MS} ms: ${what}`);
}

describe('@kubernetes/client-node', () => {
  let server;
  let config;
  let core;

  before(async () => {
    server = await startServer();
    config = new k8s.KubeConfig();
    config.loadFromFile(server.kubeconfig);
    core = config.makeApiClient(k8s.CoreV1Api);
  });

  after(() => server?.stop());

  const create = (name, data = {}, labels = {}) =>
    core.createNamespacedConfigMap({ namespace: 'default', body: { metadata: { name, labels }, data } });

  test('create, patch, list, delete', async () => {
    await create('settings', { colour: 'red' });
    const patched = await core.patchNamespacedConfigMap(
      { namespace: 'default', name: 'settings', body: { data: { size: '1' } } },
      k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.StrategicMergePatch),
    );
    assert.deepEqual(patched.data, { colour: 'red', size: '1' });
    const list = await core.listNamespacedConfigMap({
      namespace: 'default',
      fieldSelector: 'metadata.name=settings',
    });
    assert.deepEqual(list.items.map((item) => item.metadata.name), ['settings']);
    await core.deleteNamespacedConfigMap({ namespace: 'default', name: 'settings' });
    await assert.rejects(core.readNamespacedConfigMap({ namespace: 'default', name: 'settings' }), (error) => {
      assert.equal(error.code, 404);
      return true;
    });
  });

  test('a watch resumes where it ended', async () => {
    const path = '/api/v1/namespaces/default/configmaps';
    const labelSelector = 'test=resume';
    // Watches from a version until `count` events came; resolves with them.
    const watchFrom = (resourceVersion, count) =>
      new Promise((resolve, reject) => {
        const events = [];
        let request;
        const received = (type, object) => {
          events.push([type, object]);
          if (events.length === count) request.then((controller) => controller.abort(), reject);
        };
        const ended = () => (events.length === count ? resolve(events) : reject(new Error('the watch ended early')));
        request = new k8s.Watch(config).watch(path, { resourceVersion, labelSelector }, received, ended);
        request.catch(reject);
      });
    const list = await core.listNamespacedConfigMap({ namespace: 'default' });
    const first = watchFrom(list.metadata.resourceVersion, 1);
    await create('one', {}, { test: 'resume' });
    const [[type, one]] = await first;
    assert.equal(type, 'ADDED');
    await create('two', {}, { test: 'resume' });
    await core.deleteNamespacedConfigMap({ namespace: 'default', name: 'one' });
    const resumed = await watchFrom(one.metadata.resourceVersion, 2);
    const seen = resumed.map(([event, object]) => `${event} ${object.metadata.name}`);
    assert.deepEqual(seen, ['ADDED two', 'DELETED one']);
  });

  test('an informer', async () => {
    const listed = () => core.listNamespacedConfigMap({ namespace: 'default', labelSelector: 'test=informer' });
    await create('before', {}, { test: 'informer' });
    const path = '/api/v1/namespaces/default/configmaps';
    const informer = k8s.makeInformer(config, path, listed, 'test=informer');
    const seen = [];
    for (const verb of ['add', 'update', 'delete']) {
      informer.on(verb, (object) => seen.push(`${verb} ${object.metadata.name}`));
    }
    let failure;
    informer.on('error', (error) => (failure = error));
    await informer.start();
    await create('after', {}, { test: 'informer' });
    await core.deleteNamespacedConfigMap({ namespace: 'default', name: 'before' });
    await eventually('the deletion', () => seen.includes('delete before'));
    assert.deepEqual(seen, ['add before', 'add after', 'delete before']);
    assert.deepEqual(informer.list('default').map((object) => object.metadata.name), ['after']);
    await informer.stop();
    assert.equal(failure, undefined);
  });

  test('custom resources with a handler', async () => {
    const schema = {
      type: 'object',
      properties: {
        spec: { type: 'object', properties: { size: { type: 'integer' } } },
        status: { type: 'object', properties: { double: { type: 'integer' } } },
      },
    };
    const definition = {
      metadata: { name: 'widgets.example.com' },
      spec: {
        group: 'example.com',
        names: { plural: 'widgets', kind: 'Widget' },
        scope: 'Namespaced',
        versions: [
          { name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: schema }, subresources: { status: {} } },
        ],
      },
    };
    await config.makeApiClient(k8s.ApiextensionsV1Api).createCustomResourceDefinition({ body: definition });
    const api = config.makeApiClient(k8s.CustomObjectsApi);
    const place = { group: 'example.com', version: 'v1', namespace: 'default', plural: 'widgets' };
    const informer = k8s.makeInformer(config, '/apis/example.com/v1/namespaces/default/widgets', () =>
      api.listNamespacedCustomObject(place),
    );
    // The handler: doubles the size into the status.
    const failures = [];
    informer.on('change', (widget) => {
      if (widget.status?.double === widget.spec.size * 2) return;
      const body = { ...widget, status: { double: widget.spec.size * 2 } };
      const name = widget.metadata.name;
      api.replaceNamespacedCustomObjectStatus({ ...place, name, body }).catch((error) => failures.push(error));
    });
    await informer.start();
    const body = { apiVersion: 'example.com/v1', kind: 'Widget', metadata: { name: 'w' }, spec: { size: 21 } };
    await api.createNamespacedCustomObject({ ...place, body });
    await eventually('the status', async () => {
      const widget = await api.getNamespacedCustomObject({ ...place, name: 'w' });
      return widget.status?.double === 42;
    });
    assert.deepEqual(failures, []);
    await informer.stop();
    const wrong = { ...body, metadata: { name: 'wrong' }, spec: { size: 'large' } };
    await assert.rejects(api.createNamespacedCustomObject({ ...place, body: wrong }), (error) => {
      assert.equal(error.code, 422);
      return true;
    });
  });
});
