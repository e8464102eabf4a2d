package framework

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	netutils "k8s.io/utils/net"

	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"binnacle/e2e/conformance/shim"
)

// StartTestServer starts an API server process.
func StartTestServer(ctx context.Context, t testing.TB, setup TestServerSetup) (client.Interface, *rest.Config, TearDownFunc) {
	t.Helper()
	dir, err := os.MkdirTemp("", "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	o, err := shimOptions(dir)
	if err != nil {
		t.Fatal(err)
	}
	gates, err := shim.NewGates()
	if err != nil {
		t.Fatal(err)
	}
	o.GenericServerRunOptions.ComponentGlobalsRegistry = gates.Registry
	if setup.ModifyServerRunOptions != nil {
		setup.ModifyServerRunOptions(o)
	}
	s, err := shim.Start(ctx, t, shim.Config{Options: o, Modify: setup.ModifyServerConfig, Dir: dir})
	if err != nil {
		os.RemoveAll(dir)
		t.Fatalf("failed to start the server: %v", err)
	}
	t.Cleanup(s.Stop)
	config := rest.CopyConfig(s.Client)
	config.ContentType, config.DisableCompression = runtime.ContentTypeProtobuf, true
	if file := filepath.Join(dir, "apiserver.crt"); exists(file) {
		config.CAFile, config.CAData, config.ServerName = file, nil, ""
	}
	c, err := client.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c, config, func() {
		s.Stop()
		os.RemoveAll(dir)
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// shimOptions returns the options of a test server.
func shimOptions(dir string) (*options.ServerRunOptions, error) {
	key, err := shim.WriteServiceAccountKey(dir)
	if err != nil {
		return nil, err
	}
	for file, name := range map[string]string{"proxy-ca.crt": "front-proxy-ca", "client-ca.crt": "client-ca"} {
		if _, err := shim.NewCA(dir, file, name); err != nil {
			return nil, err
		}
	}
	const issuer = "https://foo.bar.example.com"
	o := options.NewServerRunOptions()
	o.SecureServing.BindAddress = netutils.ParseIPSloppy("127.0.0.1")
	o.SecureServing.ServerCert.CertDirectory = dir
	o.ServiceAccountSigningKeyFile = key
	o.Etcd.StorageConfig.Prefix = path.Join("/", uuid.New().String(), "registry")
	o.Etcd.StorageConfig.Transport.ServerList = []string{GetEtcdURL()}
	o.ServiceClusterIPRanges = "10.0.0.0/24"
	h := o.Authentication.RequestHeader
	h.UsernameHeaders, h.GroupHeaders, h.ExtraHeaderPrefixes = []string{"X-Remote-User"}, []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"}
	h.AllowedNames, h.ClientCAFile = []string{"kube-aggregator"}, filepath.Join(dir, "proxy-ca.crt")
	o.Authentication.APIAudiences = []string{issuer}
	o.Authentication.ServiceAccounts.Issuers = []string{issuer}
	o.Authentication.ServiceAccounts.KeyFiles = []string{key}
	o.Authentication.ClientCert.ClientCA = filepath.Join(dir, "client-ca.crt")
	o.Authorization.Modes = []string{"Node", "RBAC"}
	return o, nil
}
