package etcd

import (
	"context"
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsclientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/runtime"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/integration"
	"k8s.io/kubernetes/test/integration/framework"

	"binnacle/e2e/conformance/shim"
)

// StartRealAPIServerOrDie starts an API server process that serves every resource.
func StartRealAPIServerOrDie(t *testing.T, configFuncs ...func(*options.ServerRunOptions)) *APIServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	key, err := shim.WriteServiceAccountKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	gates, err := shim.NewGates()
	if err != nil {
		t.Fatal(err)
	}
	o := options.NewServerRunOptions()
	o.GenericServerRunOptions.ComponentGlobalsRegistry = gates.Registry
	const issuer = "https://foo.bar.example.com"
	o.SecureServing.ServerCert.CertDirectory = dir
	o.ServiceAccountSigningKeyFile = key
	o.Etcd.StorageConfig.Transport.ServerList = []string{framework.GetEtcdURL()}
	o.Etcd.DefaultStorageMediaType = runtime.ContentTypeJSON
	o.ServiceClusterIPRanges = "10.0.0.0/24"
	o.Authentication.APIAudiences = []string{issuer}
	o.Authentication.ServiceAccounts.Issuers = []string{issuer}
	o.Authentication.ServiceAccounts.KeyFiles = []string{key}
	o.Authorization.Modes = []string{"RBAC"}
	o.Admission.GenericAdmission.DisablePlugins = []string{"ServiceAccount"}
	o.APIEnablement.RuntimeConfig["api/all"] = "true"
	for _, f := range configFuncs {
		f(o)
	}
	rawClient, kv, err := integration.GetEtcdClients(o.Etcd.StorageConfig.Transport)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Delete(context.Background(), "/registry/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	s, err := shim.Start(context.Background(), t, shim.Config{Options: o, Dir: dir})
	if err != nil {
		t.Fatalf("failed to start the server: %v", err)
	}
	t.Cleanup(s.Stop)
	config := restclient.CopyConfig(s.Client)
	config.ContentType, config.DisableCompression = runtime.ContentTypeProtobuf, true
	restclient.SetDefaultWarningHandler(restclient.NoWarnings{})
	c := clientset.NewForConfigOrDie(config)
	CreateTestCRDs(t, apiextensionsclientset.NewForConfigOrDie(config), false, GetCustomResourceDefinitionData()...)
	_, resources, err := c.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	return &APIServer{
		Client: c, Dynamic: dynamic.NewForConfigOrDie(config), Config: config, KV: kv,
		Mapper: restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(c.Discovery())), Resources: GetResources(t, resources),
		Cleanup: func() {
			s.Stop()
			rawClient.Close()
			os.RemoveAll(dir)
		},
	}
}
