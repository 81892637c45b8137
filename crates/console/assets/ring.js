// Positions on the ring of a history.

/** Returns the position of a version in the history, from 0 (oldest) to 1 (newest); undefined if there is no history. A
 * version that the history no longer has is at 0. */
export function ringPosition({ history, resourceVersion }, version) {
  const oldest = Number(history?.oldestResourceVersion);
  const newest = Number(resourceVersion);
  const at = Number(version);
  if (!version || !(newest >= oldest) || !Number.isFinite(at)) return undefined;
  if (newest === oldest) return 1;
  return Math.max(0, Math.min(1, (at - oldest) / (newest - oldest)));
}
