package v1

// SwaggerDoc documents the type.
func (JSONSchemaProps) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                                     "JSONSchemaProps is a JSON schema (http://json-schema.org/) as OpenAPI v3 has it, with the extensions of Kubernetes.",
		"default":                              "Value of the field when an object leaves it out. Needs a structural schema.",
		"format":                               "Format of the value. Unknown formats are ignored. Checked are, among others, bsonobjectid, uri, email, hostname, ipv4, ipv6, cidr, mac, uuid, isbn, creditcard, ssn, hexcolor, rgbcolor, byte, password, date, duration and datetime.",
		"x-kubernetes-preserve-unknown-fields": "Keeps fields that the schema does not name, here and below unless said otherwise.",
		"x-kubernetes-embedded-resource":       "The value is an object with apiVersion, kind and metadata of its own. Type must be object.",
		"x-kubernetes-int-or-string":           "The value is an integer or a string. No type is given then, or one of the two in anyOf.",
		"x-kubernetes-list-map-keys":           "Fields that together identify an element of a list of type map.",
		"x-kubernetes-list-type":               "How a list is merged: atomic as a whole, set by value, map by the keys in x-kubernetes-list-map-keys.",
		"x-kubernetes-map-type":                "How an object is merged: granular by field, atomic as a whole.",
		"x-kubernetes-validations":             "CEL rules that the value must keep.",
	}
}

// SwaggerDoc documents the type.
func (ExternalDocumentation) SwaggerDoc() map[string]string {
	return map[string]string{"": "ExternalDocumentation points to documentation elsewhere."}
}

// SwaggerDoc documents the type.
func (ValidationRule) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                  "ValidationRule is a rule in the CEL expression language.",
		"rule":              "CEL expression that must be true. It reads the value as self, and the value before an update as oldSelf.",
		"message":           "Text shown when the rule is broken.",
		"messageExpression": "CEL expression of that text. It takes precedence over message.",
		"reason":            "Reason that the error is reported with: FieldValueInvalid (the default), FieldValueForbidden, FieldValueRequired or FieldValueDuplicate.",
		"fieldPath":         "Path of the field that the error is reported at, relative to the value.",
		"optionalOldSelf":   "Also evaluates a rule about oldSelf when there is no old value; oldSelf is optional then.",
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
		"":         "ConversionReview is what a conversion webhook is asked and answers.",
		"request":  "The question.",
		"response": "The answer.",
	}
}

// SwaggerDoc documents the type.
func (ConversionRequest) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                  "ConversionRequest asks to convert objects.",
		"uid":               "Identifies the question. The answer repeats it.",
		"desiredAPIVersion": "The apiVersion to convert to, such as example.com/v1.",
		"objects":           "The objects to convert.",
	}
}

// SwaggerDoc documents the type.
func (ConversionResponse) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                 "ConversionResponse is the answer to a ConversionRequest.",
		"uid":              "The uid of the question.",
		"convertedObjects": "The converted objects, as many and in the same order. Nothing but labels and annotations of their metadata may change.",
		"result":           "Whether the conversion succeeded. If its status is not Success, nothing is converted.",
	}
}
