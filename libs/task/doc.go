// Package task runs the long-lived parts of a process as one group: a cache,
// a server, a poller. The first task that fails or panics ends the whole
// group, and Wait tells which one it was.
//
// A task is a function that works until its context ends. A task that returns
// nil earlier has simply finished; the others go on. After the group's context
// has ended, a context error from a task is a normal end.
//
// Run is for tasks that may all stop together. Around is for a process with a
// front door: its background tasks outlive the foreground, so that requests in
// flight still find the caches that they read when the process shuts down.
package task
