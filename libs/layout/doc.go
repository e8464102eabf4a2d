// Package layout holds the test that keeps the import graph as docs and
// package comments promise it: which packages may know etcd and NATS, which
// parts of the tree may know each other, and what is never depended on. There
// is nothing in it to call.
package layout
