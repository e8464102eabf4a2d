// Package task runs the long-lived parts of a process as one group: a cache, a server, a poller.
// The first task that fails or panics ends the whole group, and Wait returns its error with its
// name.
//
// A task is a function that works until its context ends. A task that returns nil earlier has
// finished; the other tasks continue. After the group's context has ended, a context error from a
// task is a normal end.
//
// Run is for tasks that may all stop together. Around is for a process with a foreground server:
// its background tasks outlive the server, so that in-flight requests can still use caches during
// shutdown.
package task
