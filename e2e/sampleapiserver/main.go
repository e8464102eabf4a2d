// Command sampleapiserver is Kubernetes' own example of an extension server
// (k8s.io/sample-apiserver, wardle.example.com), unchanged. It is a module of its own,
// so that nothing else depends on what it is made of.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/sample-apiserver/pkg/cmd/server"
)

func main() {
	ctx := genericapiserver.SetupSignalContext()
	options := server.NewWardleServerOptions(os.Stdout, os.Stderr)
	os.Exit(cli.Run(server.NewCommandStartWardleServer(ctx, options, false)))
}
