// Command sampleapiserver is Kubernetes' own example of an extension server
// (k8s.io/sample-apiserver, wardle.example.com), unchanged. It is a separate
// module, so that the project does not depend on its dependencies.
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
