package build

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/features"
	"binnacle/libs/limit"
	"binnacle/libs/quota"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/configuration"
	"binnacle/services/apiserver/internal/admission/plugins"
	"binnacle/services/apiserver/internal/admission/plugins/alwaysadmit"
	"binnacle/services/apiserver/internal/admission/plugins/alwaysdeny"
	"binnacle/services/apiserver/internal/admission/plugins/alwayspullimages"
	"binnacle/services/apiserver/internal/admission/plugins/antiaffinity"
	"binnacle/services/apiserver/internal/admission/plugins/certificateapproval"
	"binnacle/services/apiserver/internal/admission/plugins/certificatesigning"
	"binnacle/services/apiserver/internal/admission/plugins/certificatesubjectrestriction"
	"binnacle/services/apiserver/internal/admission/plugins/claimresize"
	"binnacle/services/apiserver/internal/admission/plugins/clustertrustbundleattest"
	"binnacle/services/apiserver/internal/admission/plugins/defaultingressclass"
	"binnacle/services/apiserver/internal/admission/plugins/defaultstorageclass"
	"binnacle/services/apiserver/internal/admission/plugins/defaulttolerationseconds"
	"binnacle/services/apiserver/internal/admission/plugins/denyserviceexternalips"
	"binnacle/services/apiserver/internal/admission/plugins/deviceadmin"
	"binnacle/services/apiserver/internal/admission/plugins/eventratelimit"
	"binnacle/services/apiserver/internal/admission/plugins/extendedresourcetoleration"
	"binnacle/services/apiserver/internal/admission/plugins/imagepolicy"
	"binnacle/services/apiserver/internal/admission/plugins/limitranger"
	"binnacle/services/apiserver/internal/admission/plugins/namespaceautoprovision"
	"binnacle/services/apiserver/internal/admission/plugins/namespaceexists"
	"binnacle/services/apiserver/internal/admission/plugins/namespacelifecycle"
	"binnacle/services/apiserver/internal/admission/plugins/noderestriction"
	"binnacle/services/apiserver/internal/admission/plugins/nodetaint"
	"binnacle/services/apiserver/internal/admission/plugins/ownerreferences"
	"binnacle/services/apiserver/internal/admission/plugins/podnodeselector"
	"binnacle/services/apiserver/internal/admission/plugins/podsecurity"
	"binnacle/services/apiserver/internal/admission/plugins/podtolerationrestriction"
	"binnacle/services/apiserver/internal/admission/plugins/podtopologylabels"
	"binnacle/services/apiserver/internal/admission/plugins/priority"
	"binnacle/services/apiserver/internal/admission/plugins/rbacescalation"
	"binnacle/services/apiserver/internal/admission/plugins/resourcequota"
	"binnacle/services/apiserver/internal/admission/plugins/runtimeclass"
	"binnacle/services/apiserver/internal/admission/plugins/serviceaccount"
	"binnacle/services/apiserver/internal/admission/plugins/storageprotection"
	"binnacle/services/apiserver/internal/admission/plugins/suiteidentity"
	"binnacle/services/apiserver/internal/admission/policies"
	"binnacle/services/apiserver/internal/admission/webhooks"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/statuses"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/server/overload"
)

// pluginFactory creates a plugin from its configuration, which is nil if there is none.
type pluginFactory func(configuration []byte) (any, error)

// withoutConfiguration returns the factory of a plugin that accepts no configuration.
func withoutConfiguration(plugin any) pluginFactory {
	return func(configuration []byte) (any, error) {
		if configuration != nil {
			return nil, errors.New("it takes no configuration")
		}
		return plugin, nil
	}
}

// pluginFactories returns the factories of all plugins, by name.
func (a *admissionBuilder) pluginFactories() map[string]pluginFactory {
	objects := a.caches.objects(true)
	ingressClasses := a.caches.lookup(networkingv1.SchemeGroupVersion.WithResource("ingressclasses"))
	storageClasses := a.caches.lookup(storagev1.SchemeGroupVersion.WithResource("storageclasses"))
	priorityClasses := a.caches.lookup(schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"))
	runtimeClasses := a.caches.lookup(nodev1.SchemeGroupVersion.WithResource("runtimeclasses"))
	webhookConfig := a.newWebhookConfig()
	out := map[string]pluginFactory{
		webhooks.MutatingName: func(c []byte) (any, error) {
			return a.newMutatingWebhooks(webhookConfig("mutatingwebhookconfigurations", c))
		},
		webhooks.ValidatingName: func(c []byte) (any, error) {
			return a.newValidatingWebhooks(webhookConfig("validatingwebhookconfigurations", c))
		},
		policies.ValidatingName: a.newValidatingPolicies,
		policies.MutatingName:   a.newMutatingPolicies,
		namespacelifecycle.Name: withoutConfiguration(&namespacelifecycle.Plugin{Namespaces: a.namespaces}),
		limitranger.Name:        a.newLimitRanger,
		podsecurity.Name: func(configuration []byte) (any, error) {
			pods, err := podsecurity.NewLister(objects, a.caches.core("namespaces"))
			if err != nil {
				return nil, err
			}
			return podsecurity.New(configuration, pods, podsecurity.NewMetrics(a.metrics))
		},
		serviceaccount.Name:  withoutConfiguration(&serviceaccount.Plugin{Accounts: objects}),
		noderestriction.Name: withoutConfiguration(a.newNodeRestriction()),
		nodetaint.Name:       withoutConfiguration(nodetaint.Plugin{}),
		priority.Name:        withoutConfiguration(&priority.Plugin{Classes: lister.NewClasses(objects, priorityClasses, priority.Default)}),
		defaulttolerationseconds.Name: withoutConfiguration(defaulttolerationseconds.Plugin{
			NotReady:    a.options.NotReadySeconds,
			Unreachable: a.options.UnreachableSeconds,
		}),
		defaultstorageclass.Name: withoutConfiguration(&defaultstorageclass.Plugin{
			Classes: lister.NewClasses(objects, storageClasses, defaultstorageclass.Default),
		}),
		storageprotection.Name: withoutConfiguration(storageprotection.Plugin{
			AttributesClasses: a.gates.Enabled(features.VolumeAttributesClass),
		}),
		claimresize.Name: withoutConfiguration(&claimresize.Plugin{
			Classes: &lister.Getter[*storagev1.StorageClass]{Objects: objects, Kind: storageClasses},
		}),
		runtimeclass.Name: withoutConfiguration(&runtimeclass.Plugin{
			Classes: &lister.Getter[*nodev1.RuntimeClass]{Objects: objects, Kind: runtimeClasses},
		}),
		certificateapproval.Name:           withoutConfiguration(&certificateapproval.Plugin{Authorizer: a.authz.chain}),
		certificatesigning.Name:            withoutConfiguration(&certificatesigning.Plugin{Authorizer: a.authz.chain}),
		certificatesubjectrestriction.Name: withoutConfiguration(certificatesubjectrestriction.Plugin{}),
		resourcequota.Name:                 a.newResourceQuota,
		defaultingressclass.Name: withoutConfiguration(&defaultingressclass.Plugin{
			Classes: lister.NewClasses(objects, ingressClasses, defaultingressclass.Default),
		}),
		clustertrustbundleattest.Name: withoutConfiguration(&clustertrustbundleattest.Plugin{Authorizer: a.authz.chain}),
		podtopologylabels.Name: withoutConfiguration(&podtopologylabels.Plugin{
			Nodes:   objects,
			Enabled: a.gates.Enabled(features.PodTopologyLabelsAdmission),
		}),
	}
	maps.Copy(out, a.optionalPlugins())
	return out
}

// initializer is a plugin that can check its configuration only once it has all its dependencies.
type initializer interface{ ValidateInitialization() error }

// admissionBuilder constructs the admission chain.
type admissionBuilder struct {
	*base
	options    *config.AdmissionOptions
	caches     *caches
	sets       *apiSets
	authz      *authorization
	network    *network
	namespaces *namespaces
	// compiler returns the compiler of CEL expressions, which it creates when it is first called.
	compiler func() (*expressions.Compiler, error)
	// writer returns the writer for the statuses of quotas. large is the limiter for large
	// requests.
	writer func() *writes.Writer
	large  *limit.Queue[string]
	// responses limits the number of concurrent large responses of webhooks.
	responses *webhookclient.ResponseLimiter
}

// newAdmission creates the admission chain. writer returns the writer, which is created later,
// because it needs the chain. large is the limiter for large requests.
func newAdmission(
	base *base,
	options *config.AdmissionOptions,
	caches *caches,
	sets *apiSets,
	authz *authorization,
	network *network,
	compiler func() (*expressions.Compiler, error),
	writer func() *writes.Writer,
	large *limit.Queue[string],
) (*admission.Chain, error) {
	builder := &admissionBuilder{
		base:       base,
		options:    options,
		caches:     caches,
		sets:       sets,
		authz:      authz,
		network:    network,
		compiler:   compiler,
		writer:     writer,
		large:      large,
		namespaces: &namespaces{&lister.Namespaces{Objects: caches.objects(true), Kind: caches.core("namespaces")}, sets.client},
		responses:  webhookclient.NewResponseLimiter(base.limits.MaxLargeWebhookResponses),
	}
	return builder.newChain()
}

// newChain returns the chain of the enabled plugins in their order, followed by the plugins
// that cannot be disabled.
func (a *admissionBuilder) newChain() (*admission.Chain, error) {
	admissionOptions := a.options
	file, err := configuration.Load(admissionOptions.ConfigFile, plugins.Names())
	if err != nil {
		return nil, fmt.Errorf("--admission-control-config-file: failed to apply admission: failed to read plugin config: %w", err)
	}
	factories := a.pluginFactories()
	var enabled []admission.Plugin
	for _, name := range plugins.Names() {
		if !admissionOptions.Enabled(name) {
			continue
		}
		if factories[name] == nil {
			if slices.Contains(admissionOptions.Enable, name) || slices.Contains(admissionOptions.AdmissionControl, name) {
				return nil, fmt.Errorf("failed to apply admission: this server does not have the admission plugin %q", name)
			}
			continue
		}
		plugin, err := newPlugin(factories[name], name, file)
		if err != nil {
			return nil, fmt.Errorf("failed to apply admission: %w", err)
		}
		enabled = append(enabled, admission.Plugin{Name: name, Plugin: plugin})
	}
	all := append(enabled, a.newRBACEscalation(), a.newDeviceAdmin(), a.newPolicyParams(),
		admission.Plugin{Name: suiteidentity.Name, Plugin: suiteidentity.Plugin{}})
	return admission.NewChain(admission.NewMetrics(a.metrics), all...), nil
}

// newDeviceAdmin creates the plugin that restricts administrative access to devices to
// namespaces that allow it.
func (a *admissionBuilder) newDeviceAdmin() admission.Plugin {
	return admission.Plugin{
		Name:   deviceadmin.Name,
		Plugin: &deviceadmin.Plugin{Namespaces: &lister.NewestNamespaces{Namespaces: *a.namespaces.Namespaces}},
	}
}

// newPlugin creates and initializes a plugin with its configuration from the file.
func newPlugin(factory pluginFactory, name string, file *configuration.File) (any, error) {
	data, err := file.ForPlugin(name)
	if err != nil {
		return nil, err
	}
	plugin, err := factory(data)
	if err != nil {
		return nil, fmt.Errorf("couldn't init admission plugin %q: %w", name, err)
	}
	if checker, ok := plugin.(initializer); ok {
		if err := checker.ValidateInitialization(); err != nil {
			return nil, fmt.Errorf("failed to initialize admission plugin %q: %w", name, err)
		}
	}
	return plugin, nil
}

// namespaces reads and creates namespaces for admission plugins.
type namespaces struct {
	*lister.Namespaces
	client *internalclient.Client
}

// Create implements namespaceautoprovision.Namespaces.
func (n *namespaces) Create(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return n.client.Create(ctx, internalclient.Collection("", "v1", "namespaces", ""), namespace)
}

// newRBACEscalation creates the plugin that prevents users from granting permissions that they do
// not have.
func (a *admissionBuilder) newRBACEscalation() admission.Plugin {
	return admission.Plugin{
		Name:   rbacescalation.Name,
		Plugin: &rbacescalation.Plugin{Policy: a.authz.policy.Engine, Authorizer: a.authz.chain},
	}
}

// newLimitRanger creates the plugin LimitRanger. Its lister decodes only the name and the spec of
// limit ranges.
func (a *admissionBuilder) newLimitRanger(configuration []byte) (any, error) {
	ranges, err := lister.NewCachedLister[*corev1.LimitRange](a.caches.objects(true),
		a.caches.core("limitranges"), a.limits.Cached, "metadata.name", "spec")
	if err != nil {
		return nil, err
	}
	return withoutConfiguration(&limitranger.Plugin{
		Ranges:   ranges,
		PodLevel: a.gates.Enabled(features.PodLevelResources),
	})(configuration)
}

var _ serviceaccount.Accounts = (*lister.Objects)(nil)

// newNodeRestriction creates the plugin that restricts kubelets to their own objects.
func (a *admissionBuilder) newNodeRestriction() *noderestriction.Plugin {
	return &noderestriction.Plugin{
		Objects: &noderestriction.Lister{
			Objects: a.caches.objects(true),
			Claims:  a.caches.core("persistentvolumeclaims"),
			Volumes: a.caches.core("persistentvolumes"),
			Drivers: a.caches.lookup(storagev1.SchemeGroupVersion.WithResource("csidrivers")),
		},
		Authorizer:     a.authz.chain,
		Audiences:      a.gates.Enabled(features.ServiceAccountNodeAudienceRestriction),
		AnyCertificate: a.gates.Enabled(features.AllowInsecureKubeletCertificateSigningRequests),
	}
}

// optionalPlugins returns the factories of the plugins that are disabled by default.
func (a *admissionBuilder) optionalPlugins() map[string]pluginFactory {
	return map[string]pluginFactory{
		alwaysadmit.Name:                withoutConfiguration(alwaysadmit.Plugin{}),
		alwaysdeny.Name:                 withoutConfiguration(alwaysdeny.Plugin{}),
		alwayspullimages.Name:           withoutConfiguration(alwayspullimages.Plugin{}),
		antiaffinity.Name:               withoutConfiguration(antiaffinity.Plugin{}),
		denyserviceexternalips.Name:     withoutConfiguration(denyserviceexternalips.Plugin{}),
		extendedresourcetoleration.Name: withoutConfiguration(extendedresourcetoleration.Plugin{}),
		namespaceautoprovision.Name:     withoutConfiguration(&namespaceautoprovision.Plugin{Namespaces: a.namespaces}),
		namespaceexists.Name:            withoutConfiguration(&namespaceexists.Plugin{Namespaces: a.namespaces}),
		ownerreferences.Name: withoutConfiguration(&ownerreferences.Plugin{
			Authorizer: a.authz.chain,
			KindOf:     a.sets.storedKind,
		}),
		podnodeselector.Name:          func(c []byte) (any, error) { return podnodeselector.New(c, a.namespaces) },
		podtolerationrestriction.Name: func(c []byte) (any, error) { return podtolerationrestriction.New(c, a.namespaces) },
		eventratelimit.Name: func(data []byte) (any, error) {
			c, err := eventratelimit.Load(data)
			if err != nil {
				return nil, err
			}
			return eventratelimit.New(c, time.Now)
		},
		imagepolicy.Name: a.newImagePolicy,
	}
}

// newImagePolicy creates the plugin ImagePolicyWebhook.
func (a *admissionBuilder) newImagePolicy(data []byte) (any, error) {
	configuration, err := imagepolicy.Load(data)
	if err != nil {
		return nil, err
	}
	plugin, err := imagepolicy.New(configuration, imagepolicy.RealClock())
	if err != nil {
		return nil, err
	}
	a.lifetime.onClose(plugin.Close)
	return plugin, nil
}

// newResourceQuota creates the plugin that charges writes to quotas.
func (a *admissionBuilder) newResourceQuota(configuration []byte) (any, error) {
	quotaConfiguration, err := resourcequota.Load(configuration)
	if err != nil {
		return nil, err
	}
	enabled := a.gates.Enabled
	cached, err := lister.NewCachedLister[*corev1.ResourceQuota](a.caches.objects(true),
		a.caches.core("resourcequotas"), a.limits.Cached, "metadata.name", "spec.scopes",
		"spec.scopeSelector", "status")
	if err != nil {
		return nil, err
	}
	return resourcequota.New(resourcequota.Config{
		Quotas: &statuses.Quotas{
			CachedLister: cached,
			Kinds:        a.sets.allKinds,
			Writer:       a.writer,
			Permit:       func(ctx context.Context) (context.Context, func()) { return overload.WithPermit(ctx, a.large) },
		},
		Configuration: quotaConfiguration,
		Now:           time.Now,
		Gates: quota.Gates{
			InPlaceResize:     enabled(features.InPlacePodVerticalScaling),
			PodLevel:          enabled(features.PodLevelResources),
			Devices:           enabled(features.DynamicResourceAllocation),
			AttributesClasses: enabled(features.VolumeAttributesClass),
		},
	}), nil
}
