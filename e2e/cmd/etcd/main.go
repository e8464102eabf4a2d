// Command etcd is the stock etcd server, built from the version of this module, so that the tests
// need no installation.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
