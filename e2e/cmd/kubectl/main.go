// Command kubectl is the stock kubectl, built from the version of this module, so that the tests
// need no installation.
package main

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth" // credential plugins, as in the released binary
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	// CheckErr prints an error the way kubectl does, and exits.
	cmdutil.CheckErr(cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()))
}
