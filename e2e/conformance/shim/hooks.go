package shim

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/kubeapiserver"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// ErrHook is wrapped in errors of tests that change the server inside its process.
var ErrHook = errors.New("in-process hook")

// hook holds the changes of a test to the configuration of a server.
type hook struct {
	flags []string
	// stop ends the webhooks of the test; may be nil.
	stop func()
	// tokenless means that the client of the test must not have the privileges of the server.
	tokenless bool
}

// runHook calls the hook of a test and translates its changes. It returns ErrHook for a change
// without a flag.
func runHook(c Config) (h hook, err error) {
	if c.Modify == nil {
		return h, nil
	}
	config, err := configuration(c.Options)
	if err != nil {
		return h, err
	}
	g := config.ControlPlane.Generic
	defer func() {
		if p := recover(); p != nil {
			h, err = hook{}, fmt.Errorf("%w: %v", ErrHook, p)
		}
	}()
	c.Modify(config)
	for name, set := range map[string]bool{
		"admission": g.AdmissionControl != nil, "audit backend": g.AuditBackend != nil, "OpenAPI": g.OpenAPIConfig != nil,
		"repair interval": config.Extra.RepairServicesInterval != 0,
	} {
		if set {
			return h, fmt.Errorf("%w: %s", ErrHook, name)
		}
	}
	h.flags = configFlags(config)
	h.tokenless = g.LoopbackClientConfig.BearerToken == ""
	webhooks, stop, err := serve(g, c.Options.Authorization.Modes, c.Dir)
	h.flags, h.stop = append(h.flags, webhooks...), stop
	return h, err
}

// configuration returns a configuration with the parts of a server that tests read.
func configuration(o *options.ServerRunOptions) (*controlplane.Config, error) {
	c := &controlplane.Config{}
	g := genericapiserver.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
	g.LoopbackClientConfig = &rest.Config{BearerToken: "set"}
	g.Authentication.Authenticator, g.Authorization.Authorizer = none{}, none{}
	c.ControlPlane = controlplaneapiserver.Config{Generic: g}
	c.ControlPlane.Extra.APIResourceConfigSource = controlplane.DefaultAPIResourceConfigSource()
	storage, err := kubeapiserver.NewStorageFactoryConfig().Complete(o.Etcd).New()
	if err != nil {
		return nil, err
	}
	c.ControlPlane.Extra.StorageFactory = storage
	if file := o.ServiceAccountSigningKeyFile; file != "" && len(o.Authentication.ServiceAccounts.Issuers) > 0 {
		key, err := keyutil.PrivateKeyFromFile(file)
		if err != nil {
			return nil, err
		}
		c.ControlPlane.Extra.ServiceAccountIssuer, err = serviceaccount.JWTTokenGenerator(o.Authentication.ServiceAccounts.Issuers[0], key)
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

func configFlags(c *controlplane.Config) (flags []string) {
	if t := c.Extra.EndpointReconcilerType; t != "" {
		flags = append(flags, "--endpoint-reconciler-type="+string(t))
	}
	if d := c.ControlPlane.Extra.ServiceAccountMaxExpiration; d > 0 {
		flags = append(flags, "--service-account-max-token-expiration="+d.String())
	}
	if c.ControlPlane.Extra.ExtendExpiration {
		flags = append(flags, "--service-account-extend-token-expiration=true")
	}
	return append(flags, resourceFlags(c.ControlPlane.Extra.APIResourceConfigSource)...)
}

func resourceFlags(source serverstorage.APIResourceConfigSource) []string {
	config, ok := source.(*serverstorage.ResourceConfig)
	if !ok {
		return nil
	}
	defaults := controlplane.DefaultAPIResourceConfigSource()
	var out []string
	for gv, on := range config.GroupVersionConfigs {
		// A test may enable a version that this release does not have.
		if was, ok := defaults.GroupVersionConfigs[gv]; legacyscheme.Scheme.IsVersionRegistered(gv) && (!ok || was != on) {
			out = append(out, fmt.Sprintf("--runtime-config=%s=%t", gv, on))
		}
	}
	for gvr, on := range config.ResourceConfigs {
		if was, ok := defaults.ResourceConfigs[gvr]; !ok || was != on {
			out = append(out, fmt.Sprintf("--runtime-config=%s/%s=%t", gvr.GroupVersion(), gvr.Resource, on))
		}
	}
	return slices.Sorted(maps.Keys(set(out)))
}

func set(list []string) map[string]bool {
	out := map[string]bool{}
	for _, s := range list {
		out[s] = true
	}
	return out
}
