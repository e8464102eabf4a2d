// Package plugins lists the names of the admission plugins in the order in which the chain calls
// them. Each plugin is a package below this one.
package plugins

import (
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
	"binnacle/services/apiserver/internal/admission/plugins/resourcequota"
	"binnacle/services/apiserver/internal/admission/plugins/runtimeclass"
	"binnacle/services/apiserver/internal/admission/plugins/serviceaccount"
	"binnacle/services/apiserver/internal/admission/plugins/storageprotection"
	"binnacle/services/apiserver/internal/admission/policies"
	"binnacle/services/apiserver/internal/admission/webhooks"
)

// Names returns the admission plugins of Kubernetes 1.33 in their fixed order. The order is part of
// the behavior: a plugin sees the changes of the plugins before it, and ResourceQuota charges a
// request after all plugins that may reject it, except AlwaysDeny.
func Names() []string {
	return []string{
		alwaysadmit.Name,
		namespaceautoprovision.Name,
		namespacelifecycle.Name,
		namespaceexists.Name,
		antiaffinity.Name,
		limitranger.Name,
		serviceaccount.Name,
		noderestriction.Name,
		nodetaint.Name,
		alwayspullimages.Name,
		imagepolicy.Name,
		podsecurity.Name,
		podnodeselector.Name,
		priority.Name,
		defaulttolerationseconds.Name,
		podtolerationrestriction.Name,
		eventratelimit.Name,
		extendedresourcetoleration.Name,
		defaultstorageclass.Name,
		storageprotection.Name,
		ownerreferences.Name,
		claimresize.Name,
		runtimeclass.Name,
		certificateapproval.Name,
		certificatesigning.Name,
		clustertrustbundleattest.Name,
		certificatesubjectrestriction.Name,
		defaultingressclass.Name,
		denyserviceexternalips.Name,
		podtopologylabels.Name,
		policies.MutatingName,
		webhooks.MutatingName,
		policies.ValidatingName,
		webhooks.ValidatingName,
		resourcequota.Name,
		alwaysdeny.Name,
	}
}

// DisabledByDefault returns the plugins that are disabled by default. It omits NodeRestriction,
// which is enabled by default if the Node authorizer is configured.
func DisabledByDefault() []string {
	return []string{
		alwaysadmit.Name,
		alwaysdeny.Name,
		alwayspullimages.Name,
		denyserviceexternalips.Name,
		eventratelimit.Name,
		extendedresourcetoleration.Name,
		imagepolicy.Name,
		antiaffinity.Name,
		namespaceautoprovision.Name,
		namespaceexists.Name,
		ownerreferences.Name,
		podnodeselector.Name,
		podtolerationrestriction.Name,
	}
}
