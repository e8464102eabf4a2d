package testing

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/utils/ktesting"

	"binnacle/e2e/conformance/shim"
)

// StartTestServer starts an API server process.
func StartTestServer(t ktesting.TB, instance *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) (result TestServer, err error) {
	if instance == nil {
		instance = NewDefaultTestServerOptions()
	}
	if instance.StorageVersionWrapFunc != nil || instance.BinaryVersion != "" {
		return result, fmt.Errorf("%w: storage version manager or binary version", shim.ErrHook)
	}
	dir, err := os.MkdirTemp("", "kube-apiserver")
	if err != nil {
		return result, err
	}
	result.TmpDir = dir
	remove := func() { os.RemoveAll(dir) }
	defer func() {
		if result.TearDownFn == nil {
			remove()
		}
	}()
	o := options.NewServerRunOptions()
	base, err := shimOptions(o, instance, storage, dir)
	if err != nil {
		return result, err
	}
	gates, err := shim.NewGates()
	if err != nil {
		return result, err
	}
	o.GenericServerRunOptions.ComponentGlobalsRegistry = gates.Registry
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	for _, f := range o.Flags().FlagSets {
		fs.AddFlagSet(f)
	}
	if err := gates.Parse(t, fs, flags); err != nil {
		return result, err
	}
	s, err := shim.Start(context.Background(), t, shim.Config{Options: o, Flags: append(flags[:len(flags):len(flags)], base...), Dir: dir, SkipHealth: instance.SkipHealthzCheck})
	if err != nil {
		return result, fmt.Errorf("failed to start the server: %w", err)
	}
	t.Cleanup(s.Stop)
	result.EtcdClient, err = shimEtcd(storage)
	if err != nil {
		s.Stop()
		return result, err
	}
	result.ClientConfig = restclient.CopyConfig(s.Client)
	result.ClientConfig.QPS, result.ClientConfig.Burst = 1000, 10000
	result.ClientConfig.ContentType, result.ClientConfig.DisableCompression = runtime.ContentTypeProtobuf, true
	o.SecureServing.BindPort = s.Port
	if o.SecureServing.ServerCert.CertKey.CertFile == "" {
		o.SecureServing.ServerCert.CertKey.CertFile = filepath.Join(dir, "apiserver.crt")
		o.SecureServing.ServerCert.CertKey.KeyFile = filepath.Join(dir, "apiserver.key")
	}
	result.ServerOpts, result.EtcdStoragePrefix = o, storage.Prefix
	result.TearDownFn = func() {
		s.Stop()
		result.EtcdClient.Close()
		remove()
	}
	return result, nil
}

// shimOptions sets the options of a test server. It returns the flags that a test cannot change.
func shimOptions(o *options.ServerRunOptions, instance *TestServerInstanceOptions, storage *storagebackend.Config, dir string) ([]string, error) {
	if instance.RequestTimeout > 0 {
		o.GenericServerRunOptions.RequestTimeout = instance.RequestTimeout
	}
	o.SecureServing.ServerCert.CertDirectory = dir
	o.ServiceClusterIPRanges = "10.0.0.0/16"
	o.Etcd.StorageConfig = *storage
	if instance.EnableCertAuth {
		if err := shimAuthorities(o, instance, dir); err != nil {
			return nil, err
		}
	}
	key, err := shim.WriteServiceAccountKey(dir)
	if err != nil {
		return nil, err
	}
	return []string{"--service-account-signing-key-file=" + key, "--service-account-key-file=" + key, "--service-account-issuer=https://foo.bar.example.com"}, nil
}

func shimAuthorities(o *options.ServerRunOptions, instance *TestServerInstanceOptions, dir string) (err error) {
	var proxy shim.CA
	if ca := instance.ProxyCA; ca != nil {
		proxy = shim.CA{Cert: ca.ProxySigningCert, Key: ca.ProxySigningKey}
		err = proxy.Write(dir, "proxy-ca.crt")
	} else {
		proxy, err = shim.NewCA(dir, "proxy-ca.crt", "front-proxy-ca")
	}
	if err != nil {
		return err
	}
	if err := proxy.WriteClient(dir, "misty-crt", "misty"); err != nil {
		return err
	}
	if _, err := shim.NewCA(dir, "client-ca.crt", "client-ca"); err != nil {
		return err
	}
	headers := serveroptions.NewDelegatingAuthenticationOptions().RequestHeader
	o.Authentication.RequestHeader = &headers
	headers.ClientCAFile = filepath.Join(dir, "proxy-ca.crt")
	headers.AllowedNames = []string{"ash", "misty", "brock"}
	o.ProxyClientCertFile, o.ProxyClientKeyFile = filepath.Join(dir, "misty-crt.crt"), filepath.Join(dir, "misty-crt.key")
	o.Authentication.ClientCert.ClientCA = filepath.Join(dir, "client-ca.crt")
	return nil
}

func shimEtcd(storage *storagebackend.Config) (*clientv3.Client, error) {
	info := transport.TLSInfo{CertFile: storage.Transport.CertFile, KeyFile: storage.Transport.KeyFile, TrustedCAFile: storage.Transport.TrustedCAFile}
	config, err := info.ClientConfig()
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: storage.Transport.ServerList, TLS: config})
}
