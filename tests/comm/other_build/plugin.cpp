// A plugin of another build: it has the names, and another interface.
extern "C" {

const char* tessera_plugin_abi() {
  return "0123456789abcdef";
}

void* tessera_plugin_connect(const void*, const void*) {
  return nullptr;
}
}
