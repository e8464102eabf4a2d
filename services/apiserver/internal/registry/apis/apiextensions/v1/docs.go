package v1

// The SwaggerDoc methods document the fields by JSON name, and the type by "". `kubectl explain`
// shows the texts.

const objectMetaDoc = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"

// SwaggerDoc documents the type.
func (CustomResourceDefinition) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "CustomResourceDefinition declares a resource that the API server serves. Its name must be <.spec.names.plural>.<.spec.group>.",
		"metadata": objectMetaDoc,
		"spec":     "Desired state: how the resource is named, served and stored.",
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
		"scope":                 "Scope of the objects: Cluster or Namespaced.",
		"versions":              "All versions of the resource. Objects are stored in exactly one of them. In discovery, versions such as v1, v2beta1 come first, stable before beta before alpha, higher numbers first.",
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
		"deprecated":               "Whether responses to requests for this version contain a warning.",
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
		"status": "Serves /status. Requests to /status change only .status, and all other requests do not change it.",
		"scale":  "Serves /scale, which shows and changes the number of replicas as an autoscaling/v1 Scale.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceSubresourceStatus) SwaggerDoc() map[string]string {
	return map[string]string{"": "CustomResourceSubresourceStatus enables the status sub-resource."}
}

// SwaggerDoc documents the type.
func (CustomResourceSubresourceScale) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                   "CustomResourceSubresourceScale defines the fields of an object that a Scale shows. Paths are JSON paths without array notation.",
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
		"priority":    "Columns with a priority above 0 are shown in wide output only.",
		"jsonPath":    "JSON path of the value in the object.",
	}
}

// SwaggerDoc documents the type.
func (SelectableField) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "SelectableField is a field that field selectors may name.",
		"jsonPath": "JSON path of a string, boolean or integer field, without array notation. It must not be below metadata.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceConversion) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "CustomResourceConversion defines how objects are converted between versions.",
		"strategy": "None changes only the apiVersion. Webhook calls a webhook.",
		"webhook":  "The webhook, if strategy is Webhook.",
	}
}

// SwaggerDoc documents the type.
func (WebhookConversion) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                         "WebhookConversion defines the webhook that converts objects.",
		"clientConfig":             "How to call the webhook.",
		"conversionReviewVersions": "Versions of ConversionReview that the webhook reads, in order of preference. The server uses the first one that it supports.",
	}
}

// SwaggerDoc documents the type.
func (WebhookClientConfig) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "WebhookClientConfig defines how to connect to a webhook. Exactly one of url and service is set.",
		"url":      "URL of the webhook, scheme://host:port/path with the scheme https and without user, query and fragment.",
		"service":  "Service of the webhook.",
		"caBundle": "PEM certificates by which the webhook's certificate is verified. By default the certificates of the system.",
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
		"acceptedNames":  "Names under which the resource is served. They differ from those of the spec if another resource has the same names.",
		"storedVersions": "Versions in which objects have ever been stored. A version cannot be removed from the spec while it is in this list.",
	}
}

// SwaggerDoc documents the type.
func (CustomResourceDefinitionCondition) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                   "CustomResourceDefinitionCondition is one condition of a definition.",
		"type":               "Type of the condition: Established, NamesAccepted, NonStructuralSchema, Terminating or KubernetesAPIApprovalPolicyConformant.",
		"status":             "True, False or Unknown.",
		"lastTransitionTime": "Time of the last change of the status.",
		"reason":             "Reason of the last change, one word in CamelCase.",
		"message":            "Details of the last change, for people.",
	}
}
