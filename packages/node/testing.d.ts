/** Options of {@link start}. */
export interface StartOptions {
  /** Further flags of `watchet serve`. */
  flags?: string[];
}

/** A running server. It ends when this process ends, even if it is killed. */
export interface Server extends AsyncDisposable {
  /** `https://127.0.0.1:` and the port. */
  readonly url: string;
  /** The path of the administrator's kubeconfig. */
  readonly kubeconfig: string;
  /** The process ID. */
  readonly pid: number;
  /** Returns what the server has logged. */
  log(): string;
  /** Ends the server and deletes its directory. */
  stop(): Promise<void>;
}

/**
 * Starts a server on a free port that stores objects in memory, and resolves when it is ready. Rejects with the log of the
 * server if it does not become ready.
 */
export function start(options?: StartOptions): Promise<Server>;
