"""The operator that test_kopf.py runs: copies the text of a Copy into a config map that the Copy owns."""

import kopf
import kubernetes


def core():
    return kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config())


@kopf.on.create("copies.example.com")
def created(body, spec, name, namespace, **_):
    child = {"metadata": {"name": name}, "data": {"text": spec["text"]}}
    kopf.adopt(child, owner=body)
    core().create_namespaced_config_map(namespace, child)


@kopf.on.update("copies.example.com")
def changed(spec, name, namespace, **_):
    core().patch_namespaced_config_map(name, namespace, {"data": {"text": spec["text"]}})
    return {"text": spec["text"]}


@kopf.on.delete("copies.example.com")
def deleted(name, logger, **_):
    logger.info("said good-bye to %s", name)
