package v1

const objectMetaDoc = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"

// SwaggerDoc documents the type.
func (APIService) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "APIService says which server answers for a group version. Its name must be <version>.<group>.",
		"metadata": objectMetaDoc,
		"spec":     "Where the server is.",
		"status":   "What is known of the server.",
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
		"":                      "APIServiceSpec says where the server of a group version is and how the two rank in discovery. Only https is spoken.",
		"service":               "Service of the server. Without one this server answers itself.",
		"group":                 "Name of the API group.",
		"version":               "Name of the version, such as v1.",
		"insecureSkipTLSVerify": "Does not verify the server's certificate. Strongly discouraged: use caBundle.",
		"caBundle":              "PEM certificates that the server's certificate is verified with. By default those of the system.",
		"groupPriorityMinimum":  "Least priority of the group. Higher groups come first in discovery, equal ones by name. Other versions of the group may ask for more.",
		"versionPriority":       "Priority of the version within its group, above 0. Higher versions come first; equal ones in the order v10, v2, v1, v11beta2, v3beta1, v12alpha1, foo1.",
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
		"":           "APIServiceStatus is what is known of the server.",
		"conditions": "Conditions of the server.",
	}
}

// SwaggerDoc documents the type.
func (APIServiceCondition) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                   "APIServiceCondition is one condition of the server.",
		"type":               "Type of the condition: Available.",
		"status":             "True, False or Unknown.",
		"lastTransitionTime": "When the status changed last.",
		"reason":             "Reason of the last change, one word in CamelCase.",
		"message":            "Details of the last change, for people.",
	}
}
