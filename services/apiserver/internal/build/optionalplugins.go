package build

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission/plugins/alwaysadmit"
	"binnacle/services/apiserver/internal/admission/plugins/alwaysdeny"
	"binnacle/services/apiserver/internal/admission/plugins/alwayspullimages"
	"binnacle/services/apiserver/internal/admission/plugins/antiaffinity"
	"binnacle/services/apiserver/internal/admission/plugins/denyserviceexternalips"
	"binnacle/services/apiserver/internal/admission/plugins/eventratelimit"
	"binnacle/services/apiserver/internal/admission/plugins/extendedresourcetoleration"
	"binnacle/services/apiserver/internal/admission/plugins/imagepolicy"
	"binnacle/services/apiserver/internal/admission/plugins/namespaceautoprovision"
	"binnacle/services/apiserver/internal/admission/plugins/namespaceexists"
	"binnacle/services/apiserver/internal/admission/plugins/ownerreferences"
	"binnacle/services/apiserver/internal/admission/plugins/podnodeselector"
	"binnacle/services/apiserver/internal/admission/plugins/podtolerationrestriction"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// optionalPlugins returns the factories of plugins.OffByDefault.
func (p *parts) optionalPlugins() map[string]pluginFactory {
	o := &podObjects{Objects: p.objects(true), namespaces: p.lookup(corev1.SchemeGroupVersion.WithResource("namespaces"))}
	return map[string]pluginFactory{
		alwaysadmit.Name:                withoutConfiguration(alwaysadmit.Plugin{}),
		alwaysdeny.Name:                 withoutConfiguration(alwaysdeny.Plugin{}),
		alwayspullimages.Name:           withoutConfiguration(alwayspullimages.Plugin{}),
		antiaffinity.Name:               withoutConfiguration(antiaffinity.Plugin{}),
		denyserviceexternalips.Name:     withoutConfiguration(denyserviceexternalips.Plugin{}),
		extendedresourcetoleration.Name: withoutConfiguration(extendedresourcetoleration.Plugin{}),
		namespaceautoprovision.Name:     withoutConfiguration(&namespaceautoprovision.Plugin{Namespaces: &namespaces{p}}),
		namespaceexists.Name:            withoutConfiguration(&namespaceexists.Plugin{Namespaces: &namespaces{p}}),
		ownerreferences.Name:            withoutConfiguration(&ownerreferences.Plugin{Authorizer: p.authz.chain, KindOf: p.storedKind}),
		podnodeselector.Name:            func(c []byte) (any, error) { return podnodeselector.New(c, o) },
		podtolerationrestriction.Name:   func(c []byte) (any, error) { return podtolerationrestriction.New(c, o) },
		eventratelimit.Name: func(data []byte) (any, error) {
			c, err := eventratelimit.Load(data)
			if err != nil {
				return nil, err
			}
			return eventratelimit.New(c, time.Now)
		},
		imagepolicy.Name: p.imagePolicy,
	}
}

func (p *parts) imagePolicy(data []byte) (any, error) {
	c, err := imagepolicy.Load(data)
	if err != nil {
		return nil, err
	}
	plugin, err := imagepolicy.New(c, imagepolicy.RealClock())
	if err != nil {
		return nil, err
	}
	p.life.onClose(plugin.Close)
	return plugin, nil
}

// storedKind returns the served kind that stores a kind; nil if none is served.
func (p *parts) storedKind(gvk schema.GroupVersionKind) *registry.Kind {
	if r := p.kinds.Current().StoredKind(gvk); r != nil {
		return r.Kind
	}
	return nil
}

// Create implements namespaceautoprovision.Namespaces.
func (n *namespaces) Create(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return n.p.client.Create(ctx, internalclient.Of("", "v1", "namespaces", ""), ns)
}
