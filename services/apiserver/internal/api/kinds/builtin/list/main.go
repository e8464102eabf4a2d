// Command list prints the group, version and name of each built-in kind, one per line. The tool
// apidiff compares them with the kinds of another version of Kubernetes.
package main

import (
	"fmt"
	"os"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

func main() {
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "list:", err)
		os.Exit(1)
	}
	for _, k := range catalog.Kinds() {
		fmt.Printf("%s/%s %s\n", k.Group, k.Version, k.Names.Kind)
	}
}
