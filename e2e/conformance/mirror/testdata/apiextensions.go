package testing

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	restclient "k8s.io/client-go/rest"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	kubeoptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"binnacle/e2e/conformance/shim"
)

// delegating are flags of a server that delegates authentication and authorization.
var delegating = []string{"authentication-skip-lookup", "authentication-kubeconfig", "authorization-kubeconfig", "kubeconfig"}

// StartTestServer starts an API server process.
func StartTestServer(t Logger, _ *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) (result TestServer, err error) {
	dir, err := os.MkdirTemp("", "apiextensions-apiserver")
	if err != nil {
		return result, err
	}
	result.TmpDir = dir
	defer func() {
		if result.TearDownFn == nil {
			os.RemoveAll(dir)
		}
	}()
	gates, err := shim.NewGates()
	if err != nil {
		return result, err
	}
	o := options.NewCustomResourceDefinitionsServerOptions(os.Stdout, os.Stderr)
	o.ServerRunOptions.ComponentGlobalsRegistry = gates.Registry
	if storage != nil {
		o.RecommendedOptions.Etcd.StorageConfig = *storage
	}
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := gates.Parse(t.(featuregatetesting.TB), fs, flags); err != nil {
		return result, err
	}
	key, err := shim.WriteServiceAccountKey(dir)
	if err != nil {
		return result, err
	}
	const issuer = "https://foo.bar.example.com"
	k := kubeoptions.NewServerRunOptions()
	k.SecureServing.ServerCert.CertDirectory = dir
	k.ServiceAccountSigningKeyFile = key
	k.Authentication.ServiceAccounts.Issuers = []string{issuer}
	k.Authentication.ServiceAccounts.KeyFiles = []string{key}
	k.APIEnablement.RuntimeConfig["api/all"] = "true"
	if storage != nil {
		k.Etcd.StorageConfig = *storage
	}
	s, err := shim.Start(context.Background(), t, shim.Config{Options: k, Flags: own(flags), Dir: dir})
	if err != nil {
		return result, fmt.Errorf("failed to start the server: %w", err)
	}
	result.ClientConfig, result.ServerOpts = restclient.CopyConfig(s.Client), o
	result.TearDownFn = func() {
		s.Stop()
		os.RemoveAll(dir)
	}
	return result, nil
}

// own returns the flags for an API server that authenticates users itself.
func own(flags []string) (out []string) {
	for i := 0; i < len(flags); i++ {
		name, _, joined := strings.Cut(strings.TrimLeft(flags[i], "-"), "=")
		if !slices.Contains(delegating, name) {
			out = append(out, flags[i])
			continue
		}
		if !joined && i+1 < len(flags) && !strings.HasPrefix(flags[i+1], "-") {
			i++
		}
	}
	return out
}
