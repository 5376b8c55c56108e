//go:build !race

package apitest

var asTests []string
