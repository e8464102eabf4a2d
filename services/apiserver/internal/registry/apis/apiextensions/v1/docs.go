package v1

// The SwaggerDoc methods document the fields by JSON name, and the type by "". `kubectl explain`
// shows the texts.

const objectMetaDoc = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"

// SwaggerDoc documents the type.
func (CustomResourceDefinition) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "CustomResourceDefinition declares a resource that the API server serves. Its name must be <.spec.names.plural>.<.spec.group>.",
		"metadata": objectMetaDoc,
		"spec":     "What the resource looks like.",
		"status":   "Observed state of the definition.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceDefinitionList) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "CustomResourceDefinitionList is a list of CustomResourceDefinition objects.",
		"metadata": objectMetaDoc,
		"items":    "The definitions.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceDefinitionSpec) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                      "CustomResourceDefinitionSpec describes how the resource is named, served and stored.",
		"group":                 "API group of the resource, served below /apis/<group>. It is the second part of the definition's name.",
		"names":                 "Names of the resource and of its kind.",
		"scope":                 "Whether objects live in the cluster or in a namespace: Cluster or Namespaced.",
		"versions":              "All versions of the resource. Exactly one is the one that objects are stored in. In discovery, versions such as v1, v2beta1 come first, stable before beta before alpha, higher numbers first.",
		"conversion":            "How objects are converted between versions.",
		"preserveUnknownFields": "Deprecated. Must be false: fields that the schema does not name are removed, unless it sets x-kubernetes-preserve-unknown-fields.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceDefinitionNames) SwaggerDoc() map[string]string {
	return map[string]string{
		"":           "CustomResourceDefinitionNames are the names by which the resource is known.",
		"plural":     "Plural name, used in paths: /apis/<group>/<version>/.../<plural>. Lower case.",
		"singular":   "Singular name, in lower case. By default the kind in lower case.",
		"shortNames": "Short names for the command line, in lower case.",
		"kind":       "Kind of the objects, in CamelCase and singular.",
		"listKind":   "Kind of the list. By default the kind followed by List.",
		"categories": "Groups of resources that this one belongs to, such as all, for kubectl get all.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceDefinitionVersion) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                         "CustomResourceDefinitionVersion describes one version of the resource.",
		"name":                     "Name of the version, such as v1 or v2beta1.",
		"served":                   "Whether the version is served.",
		"storage":                  "Whether objects are stored in this version. True for exactly one version.",
		"deprecated":               "Whether requests to this version are answered with a warning.",
		"deprecationWarning":       "Text of that warning, in place of the default one. Only if deprecated is true.",
		"schema":                   "Schema by which objects are validated, pruned and defaulted.",
		"subresources":             "Sub-resources of this version.",
		"additionalPrinterColumns": "Columns of the Table representation. By default one column shows the age.",
		"selectableFields":         "Fields that field selectors may name. At most 8.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceValidation) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                "CustomResourceValidation holds the schema of a version.",
		"openAPIV3Schema": "OpenAPI v3 schema of the objects.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceSubresources) SwaggerDoc() map[string]string {
	return map[string]string{
		"":       "CustomResourceSubresources are the sub-resources of a version.",
		"status": "Serves /status: there only .status can change, and elsewhere it cannot.",
		"scale":  "Serves /scale, which shows and changes the number of replicas as an autoscaling/v1 Scale.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceSubresourceStatus) SwaggerDoc() map[string]string {
	return map[string]string{"": "CustomResourceSubresourceStatus turns the status sub-resource on."}
}

// SwaggerDoc documents the type.
func (CustomResourceSubresourceScale) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                   "CustomResourceSubresourceScale says where objects keep what a Scale shows. Paths are JSON paths without array notation.",
		"specReplicasPath":   "Path of the wanted number of replicas, below .spec.",
		"statusReplicasPath": "Path of the observed number of replicas, below .status.",
		"labelSelectorPath":  "Path of the label selector in text form, below .spec or .status. Needed by the horizontal pod autoscaler.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceColumnDefinition) SwaggerDoc() map[string]string {
	return map[string]string{
		"":            "CustomResourceColumnDefinition is a column of the Table representation.",
		"name":        "Heading of the column.",
		"type":        "OpenAPI type of the values: integer, number, string, boolean or date.",
		"format":      "OpenAPI format of the values. The format name marks the primary identifier.",
		"description": "What the column shows.",
		"priority":    "Columns above 0 are shown in wide output only.",
		"jsonPath":    "JSON path of the value in the object.",
	}
}

// SwaggerDoc documents the type.
func (SelectableField) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "SelectableField is a field that field selectors may name.",
		"jsonPath": "JSON path of a string, boolean or integer field, without array notation. Not of metadata.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceConversion) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "CustomResourceConversion says how objects are converted between versions.",
		"strategy": "None changes the apiVersion only. Webhook asks a webhook.",
		"webhook":  "The webhook, if strategy is Webhook.",
	}
}

// SwaggerDoc documents the type.
func (WebhookConversion) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                         "WebhookConversion says which webhook converts objects.",
		"clientConfig":             "How to call the webhook.",
		"conversionReviewVersions": "Versions of ConversionReview that the webhook reads, in order of preference. The server uses the first that it knows.",
	}
}

// SwaggerDoc documents the type.
func (WebhookClientConfig) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "WebhookClientConfig says where a webhook is. Exactly one of url and service is set.",
		"url":      "URL of the webhook, scheme://host:port/path with the scheme https and without user, query and fragment.",
		"service":  "Service of the webhook.",
		"caBundle": "PEM certificates that the webhook's certificate is verified with. By default those of the system.",
	}
}

// SwaggerDoc documents the type.
func (ServiceReference) SwaggerDoc() map[string]string {
	return map[string]string{
		"":          "ServiceReference names a service.",
		"namespace": "Namespace of the service.",
		"name":      "Name of the service.",
		"path":      "Path of the URL at which the service is called.",
		"port":      "Port of the service. 443 by default.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceDefinitionStatus) SwaggerDoc() map[string]string {
	return map[string]string{
		"":               "CustomResourceDefinitionStatus is the observed state of the definition.",
		"conditions":     "Conditions of the definition.",
		"acceptedNames":  "Names under which the resource is served. They differ from those of the spec when those are taken.",
		"storedVersions": "Versions in which objects have ever been stored. A version must not leave the spec before it left this list.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceDefinitionCondition) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                   "CustomResourceDefinitionCondition is one condition of a definition.",
		"type":               "Type of the condition: Established, NamesAccepted, NonStructuralSchema, Terminating or KubernetesAPIApprovalPolicyConformant.",
		"status":             "True, False or Unknown.",
		"lastTransitionTime": "When the status changed last.",
		"reason":             "Reason of the last change, one word in CamelCase.",
		"message":            "Details of the last change, for people.",
	}
}
