package build

import (
	"time"

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
)

// optionalPlugins returns the factories of plugins.OffByDefault.
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
		ownerreferences.Name:            withoutConfiguration(&ownerreferences.Plugin{Authorizer: a.authz.chain, KindOf: a.sets.storedKind}),
		podnodeselector.Name:            func(c []byte) (any, error) { return podnodeselector.New(c, a.namespaces) },
		podtolerationrestriction.Name:   func(c []byte) (any, error) { return podtolerationrestriction.New(c, a.namespaces) },
		eventratelimit.Name: func(data []byte) (any, error) {
			c, err := eventratelimit.Load(data)
			if err != nil {
				return nil, err
			}
			return eventratelimit.New(c, time.Now)
		},
		imagepolicy.Name: a.imagePolicy,
	}
}

func (a *admissionBuilder) imagePolicy(data []byte) (any, error) {
	c, err := imagepolicy.Load(data)
	if err != nil {
		return nil, err
	}
	plugin, err := imagepolicy.New(c, imagepolicy.RealClock())
	if err != nil {
		return nil, err
	}
	a.life.onClose(plugin.Close)
	return plugin, nil
}
