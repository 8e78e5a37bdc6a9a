// Starts a page of text and tables.

document.documentElement.classList.add("live");
useTools(() => {});
