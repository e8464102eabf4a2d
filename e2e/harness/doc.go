// Package harness runs the project's real binaries as processes for the
// end-to-end tests: it builds them, makes certificates, starts and stops
// servers on ports that nobody else has, and waits until they are ready.
//
// It owns everything it starts. Files are in the test's temporary folder, and
// processes end with the test; on a failure the last lines of their logs are
// shown. A Server or Etcd is running or stopped; Kill and Stop end its process,
// Start runs it again on the same port and data.
//
// Its callers are the tests of this module.
package harness
