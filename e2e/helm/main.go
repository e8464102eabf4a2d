// Command helm checks and renders a chart like `helm lint --strict` and `helm template`, with
// Helm's packages. It is a separate module, so that the project does not depend on Helm.
//
//	helm lint CHART NAMESPACE VALUES
//	helm template CHART NAMESPACE VALUES
//
// VALUES is a YAML text.
package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// kubeVersion is the Kubernetes version for which charts are rendered.
const kubeVersion = "v1.33.0"

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 4 {
		return errors.New("usage: helm lint|template CHART NAMESPACE VALUES")
	}
	values, err := chartutil.ReadValues([]byte(args[3]))
	if err != nil {
		return fmt.Errorf("values: %w", err)
	}
	version, err := chartutil.ParseKubeVersion(kubeVersion)
	if err != nil {
		return err
	}
	switch args[0] {
	case "lint":
		return check(args[1], args[2], values, version)
	case "template":
		return render(args[1], args[2], values, version, out)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// check returns the lint errors and warnings of a chart.
func check(chart, namespace string, values chartutil.Values, version *chartutil.KubeVersion) error {
	var errs []error
	for _, m := range lint.AllWithKubeVersion(chart, values, namespace, version).Messages {
		if m.Severity >= support.WarningSev {
			errs = append(errs, m)
		}
	}
	return errors.Join(errs...)
}

// render writes the objects of a chart in the order of their files.
func render(dir, namespace string, values chartutil.Values, version *chartutil.KubeVersion, out io.Writer) error {
	chart, err := loader.Load(dir)
	if err != nil {
		return err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	options := chartutil.ReleaseOptions{Name: chart.Name(), Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := strings.TrimSpace(files[name])
		if text == "" || filepath.Ext(name) != ".yaml" {
			continue
		}
		if _, err := fmt.Fprintf(out, "---\n# Source: %s\n%s\n", name, strings.TrimPrefix(text, "---\n")); err != nil {
			return err
		}
	}
	return nil
}
