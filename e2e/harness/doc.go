// Package harness runs the project's real binaries as processes for the end-to-end tests. It builds
// them, creates certificates, starts and stops servers on exclusive ports and waits until they are
// ready.
//
// It owns everything it starts. Files are in the test's temporary folder, and processes are killed
// at the end of the test. On a failure the ends of their logs are printed. A Server or Etcd is
// running or stopped. Kill and Stop stop its process, and Start runs it again on the same port and
// data.
//
// Its callers are the tests of this module.
package harness
