// Command integration runs integration tests of k8s.io/kubernetes against the binnacle API server.
// It prints a table of their results. A result that differs from the file of expected results, or
// from a pass for a test that the file does not list, is a failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// defaultPackages run if none is named. They are relative to the folder of integration tests. A
// package of k8s.io/apiextensions-apiserver has the prefix apiextensions/.
const defaultPackages = "apimachinery apiserver apiserver/admissionwebhook apiserver/anonymous apiserver/apply apiserver/cel " +
	"apiserver/certreload apiserver/discovery apiserver/flowcontrol apiserver/oidc apiserver/openapi apiserver/podlogs apiserver/tracing " +
	"auth certificates clustertrustbundles configmap controlplane controlplane/audit controlplane/transformation cronjob daemonset " +
	"deployment disruption dra dryrun dualstack endpoints endpointslice etcd events evictions garbagecollector job metrics namespace " +
	"network node pods podgc pvc quota replicaset replicationcontroller resourceclaim scale secrets service serviceaccount servicecidr " +
	"serving statefulset storageclasses storageversion storageversionmigrator tls ttlcontroller apiextensions/. apiextensions/conversion"

func main() {
	packages := flag.String("packages", defaultPackages, "space-separated test packages")
	run := flag.String("run", "", "regular expression that selects tests; empty runs all")
	bin := flag.String("bin", "", "folder with the binaries apiserver and etcd")
	expected := flag.String("expected", "integration/expected.txt", "file with the expected failures")
	cache := flag.String("cache", "", "folder for compiled tests; defaults to the user's cache")
	timeout := flag.Duration("timeout", 30*time.Minute, "timeout of the tests of one package")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := integrate(ctx, runner{bin: *bin, cache: *cache, run: *run, timeout: *timeout},
		strings.Fields(*packages), *expected); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func integrate(ctx context.Context, r runner, packages []string, expectedFile string) error {
	expected, err := readExpected(expectedFile)
	if err != nil {
		return err
	}
	if r.cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		r.cache = filepath.Join(dir, "binnacle-conformance")
	}
	if r.bin, err = filepath.Abs(r.bin); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	differences := 0
	for i, p := range packages {
		fmt.Printf("[%d/%d] %s\n", i+1, len(packages), p)
		results, err := r.test(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		differences += report(os.Stdout, p, results, expected[p])
	}
	if differences > 0 {
		return errors.New("results differ from the expected ones")
	}
	return nil
}
