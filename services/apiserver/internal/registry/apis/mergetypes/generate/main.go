// Command generate writes types.gob of package mergetypes from the rules in client-go. `go
// generate` in that package runs it.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/applyconfigurations"

	"binnacle/services/apiserver/internal/registry/apis/mergetypes"
)

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate() error {
	// The schema of any type is the schema of all types.
	known := applyconfigurations.NewTypeConverter(runtime.NewScheme()).TypeResolver.Type("io.k8s.api.core.v1.Pod").Schema
	if known == nil {
		return errors.New("client-go has no schema")
	}
	var b bytes.Buffer
	if err := mergetypes.Write(&b, known.Types); err != nil {
		return err
	}
	return os.WriteFile("types.gob", b.Bytes(), 0o644)
}
