package v1

// SwaggerDoc documents the type.
func (JSONSchemaProps) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                                     "JSONSchemaProps is a JSON schema (http://json-schema.org/) in the dialect of OpenAPI v3, with the extensions of Kubernetes.",
		"default":                              "Value of the field in objects that omit it. Requires a structural schema.",
		"format":                               "Format of the value. Unknown formats are ignored. Known formats include bsonobjectid, uri, email, hostname, ipv4, ipv6, cidr, mac, uuid, isbn, creditcard, ssn, hexcolor, rgbcolor, byte, password, date, duration and datetime.",
		"x-kubernetes-preserve-unknown-fields": "Keeps fields that the schema does not name, in this object and in nested ones unless their schemas forbid it.",
		"x-kubernetes-embedded-resource":       "The value is an object with apiVersion, kind and metadata of its own. Type must be object.",
		"x-kubernetes-int-or-string":           "The value is an integer or a string. The schema then has no type, or both types in anyOf.",
		"x-kubernetes-list-map-keys":           "Fields that together identify an element of a list of type map.",
		"x-kubernetes-list-type":               "How a list is merged: atomic replaces the whole list, set merges by value, map merges by the keys in x-kubernetes-list-map-keys.",
		"x-kubernetes-map-type":                "How an object is merged: granular merges by field, atomic replaces the whole object.",
		"x-kubernetes-validations":             "CEL rules for the value.",
	}
}

// SwaggerDoc documents the type.
func (ExternalDocumentation) SwaggerDoc() map[string]string {
	return map[string]string{"": "ExternalDocumentation is a reference to external documentation."}
}

// SwaggerDoc documents the type.
func (ValidationRule) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                  "ValidationRule is a rule in the CEL expression language.",
		"rule":              "CEL expression that must be true. It reads the value as self, and the value before an update as oldSelf.",
		"message":           "Error message if the value violates the rule.",
		"messageExpression": "CEL expression that returns the error message. It takes precedence over message.",
		"reason":            "Reason of the error: FieldValueInvalid (the default), FieldValueForbidden, FieldValueRequired or FieldValueDuplicate.",
		"fieldPath":         "Path of the field that the error names, relative to the value.",
		"optionalOldSelf":   "Also evaluates a rule about oldSelf if there is no old value. oldSelf is then optional.",
	}
}

// SwaggerDoc documents the type.
func (JSON) SwaggerDoc() map[string]string {
	return map[string]string{"": "JSON is any valid JSON value: a boolean, number, string, object, array or null."}
}

// SwaggerDoc documents the type.
func (JSONSchemaPropsOrArray) SwaggerDoc() map[string]string {
	return map[string]string{"": "JSONSchemaPropsOrArray is a schema or an array of schemas."}
}

// SwaggerDoc documents the type.
func (JSONSchemaPropsOrBool) SwaggerDoc() map[string]string {
	return map[string]string{"": "JSONSchemaPropsOrBool is a schema or a boolean."}
}

// SwaggerDoc documents the type.
func (JSONSchemaPropsOrStringArray) SwaggerDoc() map[string]string {
	return map[string]string{"": "JSONSchemaPropsOrStringArray is a schema or an array of property names."}
}

// SwaggerDoc documents the type.
func (ConversionReview) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "ConversionReview is a request to a conversion webhook and its response.",
		"request":  "Request to the webhook.",
		"response": "Response of the webhook.",
	}
}

// SwaggerDoc documents the type.
func (ConversionRequest) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                  "ConversionRequest is a request to convert objects.",
		"uid":               "Identifies the request. The response repeats it.",
		"desiredAPIVersion": "The apiVersion to convert to, such as example.com/v1.",
		"objects":           "The objects to convert.",
	}
}

// SwaggerDoc documents the type.
func (ConversionResponse) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                 "ConversionResponse is the response to a ConversionRequest.",
		"uid":              "The uid of the request.",
		"convertedObjects": "The converted objects, in the order of the request. Only the labels and annotations of their metadata may change.",
		"result":           "Whether the conversion succeeded. If its status is not Success, the converted objects are ignored.",
	}
}
