package v1

const objectMetaDoc = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"

// SwaggerDoc documents the type.
func (APIService) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "APIService defines the server of a group version. Its name must be <version>.<group>.",
		"metadata": objectMetaDoc,
		"spec":     "Location of the server, and the priorities of the group and the version.",
		"status":   "Observed state of the server.",
	}
}

// SwaggerDoc documents the type.
func (APIServiceList) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "APIServiceList is a list of APIService objects.",
		"metadata": objectMetaDoc,
		"items":    "The APIServices.",
	}
}

// SwaggerDoc documents the type.
func (APIServiceSpec) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                      "APIServiceSpec defines the location of the server of a group version, and the priorities of the group and the version in discovery. The protocol is always https.",
		"service":               "Service of the server. Without a service, the API server serves the group version itself.",
		"group":                 "Name of the API group.",
		"version":               "Name of the version, such as v1.",
		"insecureSkipTLSVerify": "Does not verify the server's certificate. Strongly discouraged: use caBundle.",
		"caBundle":              "PEM certificates by which the server's certificate is verified. By default the certificates of the system.",
		"groupPriorityMinimum":  "Minimum priority of the group. Groups with a higher priority come first in discovery. Groups of equal priority are ordered by name. Other versions of the group may have a higher value.",
		"versionPriority":       "Priority of the version within its group, above 0. Versions with a higher priority come first. Versions of equal priority have the order v10, v2, v1, v11beta2, v3beta1, v12alpha1, foo1.",
	}
}

// SwaggerDoc documents the type.
func (ServiceReference) SwaggerDoc() map[string]string {
	return map[string]string{
		"":          "ServiceReference names a service.",
		"namespace": "Namespace of the service.",
		"name":      "Name of the service.",
		"port":      "Port of the service. 443 by default.",
	}
}

// SwaggerDoc documents the type.
func (APIServiceStatus) SwaggerDoc() map[string]string {
	return map[string]string{
		"":           "APIServiceStatus is the observed state of the server.",
		"conditions": "Conditions of the server.",
	}
}

// SwaggerDoc documents the type.
func (APIServiceCondition) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                   "APIServiceCondition is one condition of the server.",
		"type":               "Type of the condition: Available.",
		"status":             "True, False or Unknown.",
		"lastTransitionTime": "Time of the last change of the status.",
		"reason":             "Reason of the last change, one word in CamelCase.",
		"message":            "Details of the last change, for people.",
	}
}
