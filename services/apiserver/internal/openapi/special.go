package openapi

// What the Go types cannot say, by model and JSON name.

// optional fields are always written, but need not be given.
var optional = map[string]bool{
	"io.k8s.api.apps.v1.StatefulSetOrdinals.start":                                                           true,
	"io.k8s.api.apps.v1.StatefulSetSpec.serviceName":                                                         true,
	"io.k8s.api.apps.v1.StatefulSetStatus.availableReplicas":                                                 true,
	"io.k8s.api.authentication.v1.TokenRequestSpec.boundObjectRef":                                           true,
	"io.k8s.api.authentication.v1.TokenRequestSpec.expirationSeconds":                                        true,
	"io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus.currentMetrics":                                 true,
	"io.k8s.api.core.v1.AzureFilePersistentVolumeSource.secretNamespace":                                     true,
	"io.k8s.api.core.v1.ContainerImage.names":                                                                true,
	"io.k8s.api.core.v1.Event.reportingComponent":                                                            true,
	"io.k8s.api.core.v1.Event.reportingInstance":                                                             true,
	"io.k8s.api.core.v1.GRPCAction.service":                                                                  true,
	"io.k8s.api.core.v1.NodeRuntimeHandler.name":                                                             true,
	"io.k8s.api.core.v1.ProjectedVolumeSource.sources":                                                       true,
	"io.k8s.api.core.v1.TypedLocalObjectReference.apiGroup":                                                  true,
	"io.k8s.api.core.v1.TypedObjectReference.apiGroup":                                                       true,
	"io.k8s.api.discovery.v1.EndpointSlice.ports":                                                            true,
	"io.k8s.api.events.v1.Event.metadata":                                                                    true,
	"io.k8s.api.flowcontrol.v1.FlowSchemaSpec.matchingPrecedence":                                            true,
	"io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration.nominalConcurrencyShares":                   true,
	"io.k8s.api.flowcontrol.v1.QueuingConfiguration.handSize":                                                true,
	"io.k8s.api.flowcontrol.v1.QueuingConfiguration.queueLengthLimit":                                        true,
	"io.k8s.api.flowcontrol.v1.QueuingConfiguration.queues":                                                  true,
	"io.k8s.api.flowcontrol.v1.ResourcePolicyRule.namespaces":                                                true,
	"io.k8s.api.networking.v1.IngressClassParametersReference.scope":                                         true,
	"io.k8s.api.rbac.v1.ClusterRole.rules":                                                                   true,
	"io.k8s.api.rbac.v1.Role.rules":                                                                          true,
	"io.k8s.api.storage.v1.CSINodeDriver.topologyKeys":                                                       true,
	"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus.acceptedNames":  true,
	"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus.conditions":     true,
	"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus.storedVersions": true,
}

// specialDocs documents types that carry no documentation.
var specialDocs = map[string]string{
	"io.k8s.apimachinery.pkg.apis.meta.v1.Time":       "Time is a point in time in RFC 3339 form, to the second.",
	"io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime":  "MicroTime is a point in time in RFC 3339 form, to the microsecond.",
	"io.k8s.apimachinery.pkg.apis.meta.v1.Duration":   "Duration is a length of time, such as 1h30m or 250ms.",
	"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1":   "FieldsV1 is a set of fields in JSON: a tree whose keys are f:<name> for a field, v:<value> for an element of a set, k:<keys> for an element of a list by its keys, i:<index> for one by its place, and . for the node itself.",
	"io.k8s.apimachinery.pkg.api.resource.Quantity":   "Quantity is a fixed-point number with a suffix: m, k, M, G, T, P, E (powers of 1000), Ki, Mi, Gi, Ti, Pi, Ei (powers of 1024), or an exponent such as e3. It has at most three decimal places and at most the magnitude 2^63-1.",
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString": "IntOrString is an integer or a string.",
	"io.k8s.apimachinery.pkg.runtime.RawExtension":    "RawExtension is any object; its kind and apiVersion say which.",
	"io.k8s.apimachinery.pkg.apis.meta.v1.Patch":      "Patch is a patch in the form that the Content-Type names.",
	"io.k8s.apimachinery.pkg.version.Info":            "Info tells the version of the server.",
}
